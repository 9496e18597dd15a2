"""Scoring that takes a job: judging by a model behind an endpoint or a local one, and reward models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from quintain.endpoints.profiles import find_profile, read_profiles
from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.jobs.run_jobs import JudgeSpec, ScoreSpec
from quintain.records.labels.judging import JudgingMode, Rubric
from quintain.records.labels.profiles import DomainProfile
from quintain.records.trajectory import Trajectory
from quintain.scoring.judges.rubrics import read_rubric_file
from quintain.tools.data.run_files import JUDGEMENTS, write_runs
from quintain.tools.jobs.jobs import start
from quintain.tools.labels.rubric_names import find_rubric
from quintain.tools.results import JobStarted
from quintain.tools.roots import readable
from quintain.tools.services import Services
from quintain.tools.training.agents import (
    ENDPOINT,
    agreement_note,
    require_key,
    require_loadable,
    require_weights,
    resolve_agent,
)
from quintain.tools.training.requests import spec_key


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

    Args:
        services: Of the caller.
        runs: Runs to judge.
        judge: `endpoint:NAME`, a profile of the operator's, or a local agent.
        rubric: Criteria; None: those of the profile, for single steps `steps`, else `default`.
        mode: Form of the judgement.
        profile: The runs' domain.

    Raises:
        NotFound: there is no such profile, agent or rubric, or no run.
        InvalidInput: the key's variable is not set, or the agent is no judge.
        Refused: the profile is not safe to use.
    """
    fields = judge_fields(services, judge, rubric_of(services, rubric, mode, profile), mode)
    kind = JudgeSpec if "endpoint" in fields else ScoreSpec
    spec: JudgeSpec | ScoreSpec = kind(runs=write_runs(services, runs), **fields)
    return start(services, spec, spec_key(spec))


def judge_fields(services: Services, judge: str, rubric: Rubric, mode: str) -> dict[str, Any]:
    """Return the fields of a spec about who judges and by what: `endpoint` or `agent`, and the rubric.

    Raises:
        NotFound: there is no such profile or agent.
        InvalidInput: as `start_judging`.
        Refused: the profile is not safe to use.
    """
    who: dict[str, Any]
    if judge.startswith(ENDPOINT):
        who = {"endpoint": find_profile(services.settings.endpoints_file, judge.removeprefix(ENDPOINT))}
        require_key(who["endpoint"])
    else:
        who = {"agent": judge_agent(services, judge)}
    cache = str(services.settings.cache_dir / JUDGEMENTS)
    return {**who, "rubric": rubric, "mode": mode, "control": services.settings.judge_control, "cache_dir": cache}


def rubric_of(
    services: Services,
    rubric: str | Mapping[str, Any] | Rubric | None,
    mode: JudgingMode,
    profile: DomainProfile | None = None,
) -> Rubric:
    """The rubric that a caller means, by name, as an object, or in a JSON or YAML file that may be read.

    Raises:
        NotFound: there is no rubric of this name.
        InvalidInput: an object or a file that is no rubric.
        Refused: the file lies outside the allowed roots.
    """
    if isinstance(rubric, str) and rubric.lower().endswith((".json", ".yaml", ".yml")):
        return read_rubric_file(readable(services, rubric, "rubric"))
    return find_rubric(services, "steps" if rubric is None and mode == "steps" else rubric, profile)


def start_model_scoring(services: Services, runs: Iterable[Trajectory], agent: Agent | str) -> JobStarted:
    """Start a job in which a reward model or a step model scores runs.

    Raises:
        NotFound: there is no such agent, or no run.
        InvalidInput: the agent was not trained to score.
    """
    scorer = _agent(services, agent) if isinstance(agent, str) else agent
    if scorer.role == "policy":
        raise InvalidInput(
            f"{scorer.id or scorer.name} acts and was not trained to score; as a judge by a rubric it is scorer='judge', "
            f"judge={scorer.name!r}; training with method 'reward' makes a reward model"
        )
    cache = str(services.settings.cache_dir / JUDGEMENTS)
    spec = ScoreSpec(agent=scorer, runs=write_runs(services, runs), cache_dir=cache)
    return start(services, spec, spec_key(spec), note=agreement_note(scorer))


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
        agent = _agent(services, name)
    except NotFound as error:
        if name in read_profiles(services.settings.endpoints_file):
            raise NotFound(f"there is no agent {name!r}, but an endpoint: judge='{ENDPOINT}{name}'") from None
        raise NotFound(f"{error.message}; a judge is endpoint:NAME or an agent") from None
    if agent.role != "policy":
        raise InvalidInput(
            f"expected a judge that answers in words, got {agent.id}, a {agent.role.replace('_', ' ')}; to score by it, use "
            f"scorer='agent:{agent.name}' without `judge`"
        )
    if agent.model.source == "endpoint":
        raise InvalidInput(
            f"{agent.id} acts through an endpoint, without weights here; let the endpoint itself judge: "
            f"judge='{ENDPOINT}{agent.model.path}'",
            code="no_weights",
        )
    if agent.model.source == "expert":
        require_weights(agent, "judge")
    return require_loadable(agent)


def _agent(services: Services, reference: str) -> Agent:
    """The agent of a reference, with or without `agent:` before a name without version."""
    name = reference.removeprefix("agent:")
    return resolve_agent(services, reference if "@" in name else name)
