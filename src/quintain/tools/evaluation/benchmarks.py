"""Benchmarks as task suites: the reference that plays the tasks of a dataset of kind `benchmark`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from quintain.environments.questions import ENVIRONMENT_ID as QUESTIONS
from quintain.environments.references import Reference, parse_reference, parts_of, write_reference
from quintain.errors import InvalidInput, NotFound
from quintain.records.dataset import Dataset
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.services import Services

BENCHMARK = "quintain/benchmark"
"""The environment that plays each task where it was recorded."""


def benchmark_reference(
    services: Services, dataset: Dataset, environment: str | Mapping[str, float] | None
) -> str | InvalidInput | NotFound:
    """Return the reference that plays the tasks of a benchmark, or why they cannot be played.

    Each is played where it was recorded. Questions with answers that were recorded nowhere are asked.

    Args:
        services: Whose settings hold the roots.
        dataset: Of kind `benchmark`.
        environment: Plays all of them; None: each is played where it was recorded.

    Raises:
        InvalidInput: the named environment cannot play them, or is several.
        NotFound: there is no such environment.
        Refused: an environment that the operator has not allowed.
        Unavailable: the package of an environment cannot be imported.
    """
    split = next(iter(name for name in ("test", "validation", "train") if dataset.splits.get(name)), "test")
    path = str(Path(dataset.path) / f"{split}.jsonl")
    if environment is not None:
        if not isinstance(environment, str) or parts_of(environment) is not None:
            raise InvalidInput(
                "expected one environment to play a benchmark in, got several; leave `environment` out to play each task "
                "where it was recorded"
            )
        name, options = parse_reference(environment)
        return usable_reference(services, write_reference(Reference(name, {**options, "tasks": path})))
    try:
        return usable_reference(services, write_reference(Reference(BENCHMARK, {"file": path})))
    except (InvalidInput, NotFound) as error:
        with suppress(InvalidInput):  # rows of prompt and answer, which had neither tools nor a system prompt
            return usable_reference(services, write_reference(Reference(QUESTIONS, {"file": path, "plain": "true"})))
        return error


def chosen_environment(reference: str) -> str | None:
    """Return the environment that a caller named to play a benchmark; None if each task was played where it was recorded."""
    name, options = parse_reference(reference)
    if name == BENCHMARK or (name == QUESTIONS and "file" in options):
        return None
    return write_reference(Reference(name, {option: value for option, value in options.items() if option != "tasks"}))


def trained_on_tasks(services: Services, agent_id: str | None, source_id: str, name: str) -> str:
    """Return a sentence if an agent has learned from tasks that it is measured on, else nothing.

    Args:
        services: Where the runs are looked up.
        agent_id: The agent.
        source_id: The benchmark, or the job that played the tasks.
        name: Name of the benchmark or the environment.
    """
    known, total = services.store.lineage.tasks_trained_on(agent_id or "", source_id)
    if not known:
        return ""
    return (
        f"[trained_on_tasks] {agent_id} has learned from runs of {known:,} of the {total:,} tasks of {name}, so its result there "
        "is no measure of new tasks; measure it on held-out tasks of their environment, or on a benchmark of other runs"
    )
