"""Sequential comparisons: two agents play the same tasks in turn, in a job that stops once the comparison is decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Comparison
from quintain.records.jobs.job import CompareSpec, EvaluateSpec
from quintain.tools.evaluation.environment_references import task_count
from quintain.tools.evaluation.rollouts import MeasuredSuite, acting_fields, measured_suite
from quintain.tools.jobs.jobs import spec_key, start
from quintain.tools.results import CompareResult
from quintain.tools.services import Services, find


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
        InvalidInput: Not two agents, an evaluation instead of an agent, no environment, or a dataset that is not played.
    """
    if len(agents) != 2 or agents[0] == agents[1]:
        raise InvalidInput(
            f"expected 2 different agents with `sequential`, got {', '.join(agents)}; compare them two at a time, or evaluate "
            "each and leave `sequential` out",
            code="two_agents",
        )
    if (finished := [name for name in agents if name.startswith("eval-")]) or environment is None:
        raise InvalidInput(
            f"expected agents and an environment or a benchmark that they play with `sequential`, got "
            f"{f'evaluation {finished[0]}' if finished else 'no environment'}; name "
            f"{'its agent' if finished else '`environment`'}, or leave `sequential` out to compare finished evaluations",
            code="not_playable",
        )
    suite = _played_suite(services, environment, n_tasks)
    a, b = (_side(services, name, suite, n_tasks, repeats) for name in agents)
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


def _played_suite(services: Services, environment: str | Mapping[str, float], n_tasks: int) -> MeasuredSuite:
    """Return the tasks to play: of an environment, or of the benchmark that is named instead."""
    dataset = named_dataset(services, environment)
    if dataset is None:
        return measured_suite(services, environment, None, "held_out", n_tasks)
    suite = measured_suite(services, None, dataset.id, "held_out", n_tasks)
    if suite.environment is None:
        measure = call("evaluate_agent", agent=..., dataset_id=dataset.id)
        raise InvalidInput(
            Hint(
                f"expected an environment or a benchmark that agents play with `sequential`, got {dataset.id} of kind "
                f"{dataset.kind!r}, whose rows are compared and not played; measure each agent with ",
                measure,
                ", then compare without `sequential`",
            ),
            code="not_playable",
        )
    return suite


def named_dataset(services: Services, environment: str | Mapping[str, float]) -> Dataset | None:
    """Return the dataset that is named in place of an environment; None for an environment."""
    return find(services.store.datasets.get, environment) if isinstance(environment, str) else None


def _side(services: Services, agent: str, suite: MeasuredSuite, n_tasks: int, repeats: int) -> EvaluateSpec:
    assert suite.environment is not None
    acting = acting_fields(services, agent, suite.environment)
    return EvaluateSpec(
        **acting,
        dataset_id=None if suite.dataset is None else suite.dataset.id,
        split=suite.split,
        n_tasks=task_count(acting["environment"], suite.split, None, seed=0, at_most=n_tasks),
        repeats=repeats,
        sampling=acting["agent"].sampling,
        purpose="sequential",
    )
