"""Sequential comparisons: two agents play the same tasks in turn, in a job that stops once the comparison is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quintain.errors import InvalidInput
from quintain.next_step import Hint
from quintain.records.evaluation import Comparison
from quintain.records.jobs.job import CompareSpec, EvaluateSpec
from quintain.tools.evaluation.rollouts import acting_fields
from quintain.tools.jobs.jobs import start
from quintain.tools.results import CompareResult
from quintain.tools.services import Services
from quintain.tools.training.requests import spec_key


def compare_sequentially(
    services: Services,
    agents: Sequence[str],
    environment: str | Mapping[str, float] | None,
    *,
    n_tasks: int,
    repeats: int,
) -> Comparison | CompareResult:
    """Return the comparison of an earlier request like this one, or start its job and return how to follow it.

    Raises:
        InvalidInput: Not two agents, an evaluation instead of an agent, or no environment.
    """
    if len(agents) != 2 or agents[0] == agents[1]:
        raise InvalidInput(
            f"expected 2 different agents with sequential=true, got {', '.join(agents)}; compare them two at a time, or evaluate "
            "each and leave `sequential` out",
            code="two_agents",
        )
    if (finished := [name for name in agents if name.startswith("eval-")]) or environment is None:
        raise InvalidInput(
            f"expected agents and an environment in which they play with sequential=true, got "
            f"{f'evaluation {finished[0]}' if finished else 'no environment'}; name "
            f"{'its agent' if finished else '`environment`'}, or leave `sequential` out to compare finished evaluations",
            code="not_playable",
        )
    a, b = (_side(services, name, environment, n_tasks, repeats) for name in agents)
    spec = CompareSpec(comparison_id="", a=a, b=b)
    comparison_id = f"cmp-{spec_key(spec)[:16]}"
    if (known := services.store.evaluations.find_comparison(comparison_id)) is not None:
        return known
    started = start(services, spec.model_copy(update={"comparison_id": comparison_id}), comparison_id)
    return CompareResult(
        environment=a.environment,
        job_id=started.job_id,
        status=started.status,
        resource_uri=started.resource_uri,
        next_step=Hint(started.next_step, " Then make the same call again."),
    )


def _side(
    services: Services, agent: str, environment: str | Mapping[str, float], n_tasks: int, repeats: int
) -> EvaluateSpec:
    acting = acting_fields(services, agent, environment)
    return EvaluateSpec(
        **acting,
        n_tasks=n_tasks,
        repeats=repeats,
        sampling=acting["agent"].sampling,
        purpose="sequential",
    )
