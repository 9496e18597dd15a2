"""Scoring that takes a job: models that judge or value runs, replays, step labels by Monte Carlo, and influence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from quintain.datasets.splits import task_key
from quintain.endpoints.profiles import find_profile, read_profiles
from quintain.environments.references import Reference, parse_reference, parts_of, write_reference
from quintain.environments.registry import PATH_OPTIONS
from quintain.errors import InvalidInput, NotFound, QuintainError
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.dataset import IMITATED
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import EvolveSpec, JobSpec, StepLabelSpec
from quintain.records.jobs.run_jobs import InfluenceSpec, JudgeSpec, ReplaySpec, ScoreSpec
from quintain.records.labels.judging import JudgingMode, Rubric
from quintain.records.labels.profiles import DomainProfile
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip, counted
from quintain.scoring.judges.empty_run_control import ASKED
from quintain.scoring.judges.judging_items import comparisons
from quintain.tools.data.run_files import JUDGEMENTS, write_runs
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.jobs.jobs import start
from quintain.tools.labels.scorer_resolution import find_rubric
from quintain.tools.results import JobStarted
from quintain.tools.services import Services, find
from quintain.tools.training.agents import (
    ENDPOINT,
    agreement_note,
    endpoint_of,
    require_key,
    require_loadable,
    require_policy,
    require_weights,
    resolve_scorer,
)


def start_judging(
    services: Services,
    runs: Iterable[Trajectory],
    *,
    judge: str,
    rubric: str | Mapping[str, Any] | Rubric | None = None,
    mode: JudgingMode = "score",
    profile: DomainProfile | None = None,
) -> JobStarted:
    """Start a job in which a model judges runs; its verdicts are stored as scores of `judge`, or as preferences.

    The judge is `endpoint:NAME` or a local agent; without a rubric it is that of the profile, for single steps `steps`,
    else `default`. A warning tells how many questions an endpoint gets, and what they may cost.

    Raises:
        NotFound: There is no such judge or rubric, or no run.
        InvalidInput: Runs are to be compared, and each is alone in its task.
    """
    fields = judge_fields(services, judge, find_rubric(services, rubric, mode, profile), mode)
    kind = JudgeSpec if "endpoint" in fields else ScoreSpec
    tasks = defaultdict[str, list[str]](list)

    def noted() -> Iterator[Trajectory]:
        for run in runs:
            tasks[task_key(run)].append(run.id or "")
            yield run

    spec: JudgeSpec | ScoreSpec = kind(runs=write_runs(services, noted()), **fields)
    questions = _question_count(spec, tasks)
    if not questions:
        raise InvalidInput(
            f"expected several runs of a task to compare, got {spec.runs.n} that are alone in theirs; collect several attempts of "
            "each task, or give mode 'score'",
            code="nothing_to_compare",
        )
    return start(
        services, spec, warnings=(_cost_note(services, spec, questions),) if isinstance(spec, JudgeSpec) else ()
    )


def _question_count(spec: JudgeSpec | ScoreSpec, tasks: Mapping[str, Sequence[str]]) -> int:
    """Return how many questions a judge is asked about runs, where none was answered before."""
    if spec.mode in ("score", "steps"):
        controls = {"off": 0, "task": len(tasks), "run": spec.runs.n}[spec.control]
        return spec.runs.n + ASKED * controls
    return 2 * sum(1 for ids in tasks.values() for _ in comparisons(ids, spec.mode, spec.seed))  # in both orders


def _cost_note(services: Services, spec: JudgeSpec, questions: int) -> Hint:
    """Return a note on the questions of a judge, and their cost by the newest job in which it was asked such ones."""
    asked = f"[cost] {counted(questions, 'question')} to {spec.endpoint.name}, fewer where it answered before"
    for job in services.store.jobs.page(kind="judge").items:
        report: Mapping[str, Any] = (
            job.metrics if job.result is None else job.result.report
        )  # one that came to its limit knows it, too
        same = isinstance(job.spec, JudgeSpec) and (job.spec.endpoint, job.spec.mode) == (spec.endpoint, spec.mode)
        if same and report.get("usd") is not None and report.get("requests"):
            usd = questions * float(report["usd"]) / int(report["requests"])
            return Hint(f"{asked}: about {usd:.2g} USD, at the mean of {job.id}; cancel_job stops it")
    return Hint(
        f"{asked}; no job tells yet what one costs: cancel this one and judge a few runs first, or let the operator bound a job by "
        "max_usd in the endpoint's profile"
    )


def judge_fields(services: Services, judge: str, rubric: Rubric, mode: str) -> dict[str, Any]:
    """Return the fields of a spec about who judges and by what: `endpoint` or `agent`, and the rubric."""
    who: dict[str, Any]
    if judge.startswith(ENDPOINT):
        who = {"endpoint": find_profile(services.settings.endpoints_file, judge.removeprefix(ENDPOINT))}
        require_key(who["endpoint"])
    else:
        who = {"agent": judge_agent(services, judge)}
    cache = str(services.settings.cache_dir / JUDGEMENTS)
    return {**who, "rubric": rubric, "mode": mode, "control": services.settings.judge_control, "cache_dir": cache}


def start_model_scoring(services: Services, runs: Iterable[Trajectory], agent: Agent | str) -> JobStarted:
    """Start a job in which a reward model or a step model scores runs.

    Raises:
        NotFound: there is no such agent, or no run.
        InvalidInput: the agent was not trained to score.
    """
    scorer = resolve_scorer(services, agent) if isinstance(agent, str) else agent
    if scorer.role == "policy":
        raise InvalidInput(
            f"{scorer.id_or_name} acts and was not trained to score; as a judge by a rubric it is `scorer='judge'`, "
            f"`judge={scorer.name!r}`; training with method 'reward' makes a reward model"
        )
    cache = str(services.settings.cache_dir / JUDGEMENTS)
    spec = ScoreSpec(agent=scorer, runs=write_runs(services, runs), cache_dir=cache)
    return start(services, spec, note=agreement_note(scorer))


def judge_agent(services: Services, name: str) -> Agent:
    """Return the local agent that judges.

    Raises:
        NotFound: there is no such agent.
        InvalidInput: the agent does not answer in words, or has no weights here.
    """
    if name in {"assistant", "person"}:
        raise InvalidInput(
            Hint(
                f"expected endpoint:NAME or an agent as `judge`, got {name!r}, who judges without a job; use ",
                call("get_judging_batch", limit=5, judge=name),
            )
        )
    try:
        agent = resolve_scorer(services, name)
    except NotFound as error:
        if name in read_profiles(services.settings.endpoints_file):
            raise NotFound(f"there is no agent {name!r}, but an endpoint: `judge='{ENDPOINT}{name}'`") from None
        raise NotFound(f"{error.message}; a judge is endpoint:NAME or an agent") from None
    if agent.role != "policy":
        raise InvalidInput(
            f"expected a judge that answers in words, got {agent.id}, a {agent.role.replace('_', ' ')}; to score by it, use "
            f"`scorer='agent:{agent.name}'` without `judge`"
        )
    if agent.model.source == "endpoint":
        raise InvalidInput(
            f"{agent.id} acts through an endpoint, without weights here; let the endpoint itself judge: "
            f"`judge='{ENDPOINT}{agent.model.path}'`",
            code="no_weights",
        )
    if agent.model.source == "expert":
        require_weights(agent, "judge")
    return require_loadable(agent)


def start_replay(services: Services, runs: Iterable[Trajectory]) -> JobStarted:
    """Start a job that executes the runs again; its results are stored as scores of `replay`.

    Raises:
        NotFound: there is no run.
        InvalidInput: No run can be replayed; the message contains the reasons.
    """
    usable, unusable, reference = dict[str, str](), dict[str, str](), recorded_reference(services)

    def checked() -> Iterator[Trajectory]:
        for run in runs:
            where = reference(run)
            if where is not None and where not in usable and where not in unusable:
                try:
                    usable[where] = replayable_reference(services, where)
                except QuintainError as error:
                    unusable[where] = error.message
            yield with_replay_environment(run, usable.get(where or "", where))

    spec = ReplaySpec(runs=write_runs(services, checked()), unusable=unusable)
    if not usable:
        reasons = [f"{clip(where)}: {clip(why, 300)}" for where, why in list(unusable.items())[:3]]
        raise InvalidInput(
            f"none of these {spec.runs.n} runs can be replayed: "
            f"{'; '.join(reasons) or 'no run names its environment (task.environment)'}",
            code="not_replayable",
        )
    return start(services, spec)


def replayable_reference(services: Services, reference: str) -> str:
    """Return the reference, checked as for any job. Unreadable task files are left out, since the run contains its task.

    Raises:
        NotFound: no such environment.
        InvalidInput: an option that it does not take.
        Unavailable: the package that brings it cannot be imported.
    """
    try:
        return usable_reference(services, reference)
    except QuintainError:
        name, options = parse_reference(reference)
        kept = {option: value for option, value in options.items() if option not in PATH_OPTIONS}
        if len(kept) == len(options):
            raise
        return usable_reference(services, write_reference(Reference(name, kept)))


def with_replay_environment(run: Trajectory, environment: str | None) -> Trajectory:
    """Return the run with the environment of its replay, options included."""
    return run.model_copy(update={"task": run.task.model_copy(update={"environment": environment})})


def recorded_reference(services: Services) -> Callable[[Trajectory], str | None]:
    """Return the reference of the environment that a run was recorded in; None where the run does not name it.

    A run names its environment without options, except for the part of a mixture. The job that played it knows the options; a job
    with several sets of options gives none.
    """
    known: dict[tuple[str, str], str] = {}

    def look_up(environment: str, job_id: str) -> str:
        job = find(services.store.jobs.get, job_id)
        played = set(_played_in(job.spec)) if job is not None else ()
        fitting = [one for one in played if parts_of(one) is None and parse_reference(one).id == environment]
        return fitting[0] if len(fitting) == 1 else environment

    def reference(run: Trajectory) -> str | None:
        environment, job_id = run.task.environment, run.job_id
        if not environment or job_id is None:
            return environment or None
        if (environment, job_id) not in known:
            known[environment, job_id] = look_up(environment, job_id)
        return known[environment, job_id]

    return reference


def _played_in(spec: JobSpec) -> Iterator[str]:
    """The environments of a job, as it names them; a recipe's are those of its stages, a comparison's that of one side."""
    for part in (*getattr(spec, "stages", ()), getattr(spec, "a", spec)):
        if (environment := getattr(part, "environment", None)) is not None:
            yield environment
    if isinstance(spec, EvolveSpec) and spec.config.curriculum is not None:
        yield from spec.config.curriculum.levels


def start_step_labels(
    services: Services, runs: Iterable[Trajectory], *, agent: Agent, completions: int = 8
) -> JobStarted:
    """Start a job that values each step of the runs: the share of `completions` from right after it that succeed.

    All runs are recorded in one environment, which must answer alike every time; the values are those of the steps
    under the agent.

    Raises:
        InvalidInput: the agent does not act, or the runs are of several environments or of none.
        NotFound: the environment is not installed.
    """
    require_policy(agent, "play on from a step")
    if agent.model.source == "expert":
        require_weights(agent, "play on from a step")
    require_loadable(agent)
    reference = recorded_reference(services)
    chosen = [with_replay_environment(run, reference(run)) for run in runs]
    environments = sorted({run.task.environment or "none" for run in chosen})
    if len(environments) != 1 or environments == ["none"]:
        raise InvalidInput(
            f"the runs are of {len(environments)} environments ({', '.join(environments[:5])}); step labels by Monte Carlo "
            "need runs of one environment: filter by it, such as `environment='quintain/inventory'`",
            code="no_single_environment",
        )
    environment = replayable_reference(services, environments[0])
    spec = StepLabelSpec(
        agent=agent,
        endpoint=endpoint_of(services, agent),
        environment=environment,
        runs=write_runs(services, (with_replay_environment(run, environment) for run in chosen)),
        completions=completions,
        sampling=agent.sampling.model_copy(update={"temperature": 1.0}),
    )
    return start(services, spec)


MAX_TARGETS = 500
"""Target runs that are read, the oldest of the dataset: their mean gradient changes little with more."""


def start_influence(services: Services, runs: Iterable[Trajectory], *, agent: Agent, target: str | None) -> JobStarted:
    """Start a job that scores runs by the similarity of their gradients to those of a dataset's runs.

    The ranking is for training this agent; `target` is the dataset of the runs that it should do well on.

    Raises:
        InvalidInput: There is no target, or one of runs that are not all to be imitated, or the agent has no weights here.
        NotFound: There is no such dataset, or none of its runs is stored.
    """
    require_policy(agent, "value runs by its gradients")
    require_weights(agent, "value runs by its gradients")
    if target is None:
        export = call("export_dataset", kind="sft", name="target", filter=...)
        raise InvalidInput(
            Hint(
                "expected `target`, the dataset of the runs that the agent should do well on, got none; freeze one with ",
                export,
            ),
            code="no_target",
        )
    dataset = services.store.datasets.get(target)
    if dataset.kind not in IMITATED:
        runs_of = {"dataset_id": dataset.id, "outcome": "success"}
        raise InvalidInput(
            Hint(
                f"expected a target of kind {' or '.join(IMITATED)}, whose runs are all good ones, got {dataset.id} of kind "
                f"{dataset.kind!r}; freeze its good runs with ",
                call("export_dataset", kind="sft", name=f"{dataset.name[:80]}-good", filter=runs_of),
            ),
            code="wrong_dataset_kind",
        )
    chosen = services.store.trajectories.iterate(TrajectoryFilter(dataset_id=dataset.id))
    try:
        targets = write_runs(services, islice(chosen, MAX_TARGETS))
    except NotFound:
        raise NotFound(
            f"expected a target dataset of stored runs, got {clip(dataset.id)!r} without any; export one from recorded runs",
            code="nothing_matches",
        ) from None
    spec = InfluenceSpec(agent=agent, runs=write_runs(services, runs), targets=targets)
    return start(services, spec)
