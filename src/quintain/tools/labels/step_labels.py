"""Step labels by Monte Carlo: start the job that plays on from each step of chosen runs."""

from __future__ import annotations

from collections.abc import Iterable

from quintain.errors import InvalidInput
from quintain.records.agent import Agent
from quintain.records.jobs.job import StepLabelSpec
from quintain.records.trajectory import Trajectory
from quintain.tools.data.run_files import write_runs
from quintain.tools.jobs.jobs import start
from quintain.tools.labels.replays import recorded_reference, replayable_reference, with_replay_environment
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import endpoint_of, require_loadable, require_policy, require_weights
from quintain.tools.training.requests import spec_key


def start_step_labels(
    services: Services, runs: Iterable[Trajectory], *, agent: Agent, completions: int = 8
) -> JobStarted:
    """Start a job that values each step of the runs: the share of `completions` from right after it that succeed.

    Args:
        services: Of the server or the program.
        runs: All recorded in one environment, which must answer alike every time.
        agent: Plays on; the values are those of the steps under it.
        completions: Episodes from each step, 1..256.

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
            "need runs of one environment: filter by it, such as environment='quintain/inventory'",
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
    return start(services, spec, spec_key(spec))
