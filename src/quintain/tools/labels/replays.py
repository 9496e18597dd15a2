"""Replay: start the job that executes recorded runs again, each in the environment of its recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from quintain.environments.references import Reference, parse_reference, parts_of, write_reference
from quintain.environments.registry import PATH_OPTIONS
from quintain.errors import InvalidInput, QuintainError
from quintain.records.jobs.job import CompareSpec, EvaluateSpec, EvolveSpec, JobSpec, RecipeSpec, RolloutSpec, TrainSpec
from quintain.records.jobs.run_jobs import ReplaySpec
from quintain.records.record import clip
from quintain.records.trajectory import Trajectory
from quintain.tools.data.run_files import write_runs
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.jobs.jobs import start
from quintain.tools.results import JobStarted
from quintain.tools.services import Services, find
from quintain.tools.training.requests import spec_key


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
    return start(services, spec, spec_key(spec))


def replayable_reference(services: Services, reference: str) -> str:
    """Return the reference, checked as for any job. Unreadable task files are left out, since the run contains its task.

    Raises:
        NotFound: no such environment.
        InvalidInput: an option that it does not take.
        Refused: as `usable_reference`.
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
    """The environments of a job, as it names them."""
    if isinstance(spec, RecipeSpec):
        yield from (stage.environment for stage in spec.stages if stage.environment is not None)
    elif isinstance(spec, CompareSpec):
        yield spec.a.environment
    elif isinstance(spec, TrainSpec | RolloutSpec | EvaluateSpec | EvolveSpec) and spec.environment is not None:
        yield spec.environment
        if isinstance(spec, EvolveSpec) and spec.config.curriculum is not None:
            yield from spec.config.curriculum.levels
