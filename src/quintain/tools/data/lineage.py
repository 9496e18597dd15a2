"""Lineage: ancestors and descendants of a record, and what forgotten runs block."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field, StrictBool

from quintain.errors import Conflict, InvalidInput
from quintain.next_step import Hint, ToolCall, call
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset, DatasetKind
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.evolve import round_dataset_id
from quintain.records.jobs.job import EvolveSpec, Job, JobSpec
from quintain.records.lineage import LineageEdge, LineageNode
from quintain.records.record import Record
from quintain.records.wording import counted
from quintain.tools.catalog import DEPRECATED
from quintain.tools.services import Services, find

_DEPTH = 6


class LearnedFrom(Record):
    """Every run that an agent learned from."""

    count: int
    filters: tuple[dict[str, Any], ...] = Field(description="Together they find all of them with search_trajectories.")


class LineageResult(Record):
    """`get_lineage`, and `lineage://{id}`."""

    things: tuple[LineageNode, ...] = Field(description="What was asked for.")
    ancestors: tuple[LineageNode, ...]
    descendants: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]
    counts: dict[str, dict[str, int]]
    truncated: bool
    learned_from: LearnedFrom | None = None
    shaped: tuple[str, ...] | None = None
    forgotten: None = None
    resource_uri: str
    next_step: Hint


def get_lineage(
    services: Services,
    id: Annotated[
        str,
        Field(
            min_length=1,
            max_length=500,
            description="Id of any of these, or a session id.",
        ),
    ],
    depth: Annotated[int, Field(ge=1, le=50, description="Steps to follow in each direction.")] = _DEPTH,
    forget: Annotated[StrictBool, Field(description="Refused: use `forget`.", json_schema_extra=DEPRECATED)] = False,
    trajectory_ids: Annotated[list[str] | None, Field(max_length=10_000, description="More runs, as `id`.")] = None,
) -> LineageResult:
    """Show what made a run, score, dataset, job, checkpoint, agent, evaluation or comparison, and what it made.

    `learned_from`: how many runs an agent learned from, and filters that find them; `shaped`: the agents that learned from
    a run.
    """
    if forget:
        raise InvalidInput(
            Hint("get_lineage only reads; forget with ", call("forget", id=id, trajectory_ids=trajectory_ids)),
            code="moved",
        )
    refs = services.store.lineage.resolve(id)
    more = [ref for one in dict.fromkeys(trajectory_ids or ()) for ref in services.store.lineage.resolve(one)]
    refs = list(dict.fromkeys([*refs, *more]))
    store = services.store.lineage
    before, after = store.ancestors(refs, depth), store.descendants(refs, depth)
    runs = [ref.id for ref in refs if ref.kind == "trajectory"]
    agents = [ref.id for ref in refs if ref.kind == "agent"]
    learned = store.training_sources(agents[0]) if agents else None
    return LineageResult(
        things=tuple(store.nodes(refs)),
        ancestors=before.nodes,
        descendants=after.nodes,
        edges=tuple(dict.fromkeys((*before.edges, *after.edges))),
        counts={"ancestors": before.counts, "descendants": after.counts},
        truncated=before.truncated or after.truncated,
        learned_from=learned and LearnedFrom(count=learned.count, filters=learned.filters),
        shaped=tuple(store.agents_trained_on(runs)) if runs else None,
        resource_uri=f"lineage://{quote(id, safe=':@')}",
        next_step=_next_step(id, learned.filters if learned else (), truncated=before.truncated or after.truncated),
    )


def _next_step(id: str, learned: Sequence[dict[str, Any]], *, truncated: bool) -> Hint:
    more = "Raise `depth`, or ask for one of the nodes, to see more. " if truncated else ""
    search = call("search_trajectories", filter=learned[0] if learned else ...)
    runs = "that the agent learned from" if learned else "of a node by its `filter`"
    picture = f"lineage://{quote(id, safe=':@')}/picture"
    return Hint(f"{more}Page through the runs {runs} with ", search, f"; the picture is {picture}.")


def datasets_of(spec: JobSpec) -> list[str]:
    """Return the datasets of a job."""
    parts: tuple[Any, ...] = (spec, *getattr(spec, "stages", ()))
    parts += tuple(earlier for part in parts if (earlier := getattr(part, "earlier", None)) is not None)
    return [dataset_id for part in parts if (dataset_id := getattr(part, "dataset_id", None)) is not None]


def round_datasets(job: Job) -> list[str]:
    """Return the datasets that the rounds of an evolution make, made already or not; none of another job."""
    rounds = job.spec.config.iterations if isinstance(job.spec, EvolveSpec) else 0
    return [round_dataset_id(job.id, number + 1) for number in range(rounds)]


def require_remembered(services: Services, spec_or_dataset: JobSpec | str) -> None:
    """Raise if training would use a dataset with forgotten runs.

    Of a job that would train, its spec is given.

    Raises:
        Conflict: names the dataset and the way out.
    """
    wanted = [spec_or_dataset] if isinstance(spec_or_dataset, str) else datasets_of(spec_or_dataset)
    for dataset_id, n in services.store.lineage.datasets_with_forgotten(wanted).items():
        dataset = services.store.datasets.get(dataset_id)
        raise Conflict(
            Hint(
                f"dataset {dataset_id} ({dataset.name}) contains {counted(n, 'forgotten run')}, so no training starts on it; "
                "export it again, forgotten runs are left out: ",
                export_again(dataset),
            ),
            code="forgotten",
        )


def forget_call(ids: Sequence[str], **options: Any) -> ToolCall:
    """Return the call that forgets things, or frees the disk space of jobs; without ids it names none."""
    return call("forget", id=ids[0] if ids else None, trajectory_ids=list(ids[1:]) or None, **options)


def export_again(dataset: Dataset, *, is_kept: bool = True, **shares: float) -> ToolCall:
    """Return the call that exports a dataset anew: its rows where they are, in their splits, else its runs.

    Without `is_kept` its files are about to be deleted. Texts come from their own files.
    """
    source: dict[str, Any] = {"filter": {"dataset_id": dataset.id}}
    if dataset.kind == "text":
        source = {"path": ...}
    elif dataset.kind != "benchmark" and is_kept and Path(dataset.path).is_dir():
        source = {"path": dataset.id}
    return call("export_dataset", kind=dataset.kind, name=dataset.name, **source, **shares)


def note_other_splits(services: Services, filter: TrajectoryFilter | None, kind: DatasetKind) -> list[str]:
    """Return a note that the runs of a dataset's other splits are chosen with those of train."""
    if kind == "benchmark" or filter is None or filter.dataset_id is None or filter.split is not None:
        return []
    dataset = find(services.store.datasets.get, filter.dataset_id)
    others = {} if dataset is None else {name: n for name, n in dataset.splits.items() if n and name != "train"}
    if dataset is None or not others:
        return []
    named = " and ".join(f"{name} ({counted(n, 'row')})" for name, n in sorted(others.items()))
    return [
        f"the filter also takes {named} of {dataset.name}, which are for training here: `filter={{'dataset_id': {dataset.id!r}, "
        f"'split': 'train'}}` leaves them out, `path={dataset.id!r}` keeps every row in its split"
    ]


def require_no_forgotten_sources(services: Services, agent: Agent) -> None:
    """Refuse to hand over an agent that learned from runs that were forgotten since.

    Raises:
        Conflict: Names their number and the remedy.
    """
    if note := forgotten_sources_note(services, agent.id):
        raise Conflict(
            f"{note.removeprefix('Note: ').strip()} So it is not handed over: train anew without them (an export leaves "
            "forgotten runs out), from a base that did not learn from them",
            code="forgotten",
        )


def forgotten_sources_note(services: Services, agent_id: str | None) -> str:
    """A plain sentence where an agent has learned from forgotten runs, else nothing."""
    n = services.store.lineage.count_forgotten_sources(agent_id) if agent_id else 0
    if not n:
        return ""
    runs = "a run that was" if n == 1 else f"{n} runs that were"
    return (
        f"Note: {agent_id} has learned from {runs} forgotten since, itself or through its base; what it learned is still in "
        "its weights. "
    )


def node_text(node: LineageNode) -> str:
    """Return a node as one line of text."""
    mark = f" [{node.mark}]" if node.mark else ""
    date = f", {node.created_at:%Y-%m-%d}" if node.created_at else ""
    return f"{node.kind} {node.id}: {node.label}{date}{mark}"
