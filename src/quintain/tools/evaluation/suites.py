"""Task suites: benchmarks, tasks that a caller writes, and the kind of tasks that an agent was trained on.

Written tasks are checked in form and kept as a task file in the inbox. On an MCP server each carries the calls that solve it
(`script`), so that `agent="expert"` shows by executing them that the task can be solved and that its checker notices it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quintain.datasets.rows import read_rows, task_of, trajectories_of
from quintain.environments.mcp_server.tasks import calls_of, digest, unplayable, write_rows
from quintain.environments.questions import ENVIRONMENT_ID as QUESTIONS
from quintain.environments.references import Reference, parse_reference, parts_of, write_reference
from quintain.environments.registry import knows
from quintain.environments.servers import PREFIX
from quintain.environments.tasks.task_rows import task_of as task_of_row
from quintain.errors import InvalidInput, NotFound, QuintainError, Unavailable
from quintain.jobs.directory import write_atomically
from quintain.next_step import Hint, call
from quintain.records.dataset import Dataset, SplitName
from quintain.records.jobs.job import EvolveSpec, TrainSpec
from quintain.records.trajectory import Task
from quintain.records.wording import clip, explain
from quintain.tools.data.row_references import has_questions, test_rows
from quintain.tools.evaluation.compared_agents import ancestors_of
from quintain.tools.evaluation.environment_references import usable_reference
from quintain.tools.services import Services, find
from quintain.tools.training.agents import own_model, resolve_agent

_FOLDER = "tasks"
_NOTHING = "nothing_to_measure"
_MAX_LISTED = 10
_FORM = (
    "; a task is {'prompt': ..., 'checker': ..., 'script': [{'tool': ..., 'args': {...}}]}, its checker {'type': 'state', 'tool': "
    "..., 'args': {...}, 'contains': ...}, {'type': 'calls', 'expect': [{'tool': ..., 'args': {...}}]} or {'type': 'answer', "
    "'answer': ...}, its script the calls that solve it"
)
"""Added to refusals of tasks for an MCP server."""


def store_tasks(
    services: Services, environment: str | Mapping[str, float], rows: Sequence[Mapping[str, Any]], split: str
) -> str:
    """Write tasks into a file and return the reference that plays them in an environment.

    A row without `split` belongs to `split`. The error has the reason of each row that is not a task.
    """
    if not isinstance(environment, str) or parts_of(environment) is not None:
        raise InvalidInput("expected one environment for `tasks`, got several; write tasks for each of them alone")
    name, options = parse_reference(environment)
    if "tasks" in options:
        raise InvalidInput("expected `tasks` or the option `tasks` of the environment, got both; leave one out")
    found, faults = dict[str, Task](), list[str]()
    for place, row in enumerate(rows):
        try:
            task = _task(row, split)
            fault = _fault(task, name, split, {other.prompt for other in found.values()})
        except ValidationError as error:
            fault = explain(error, "row")
        except QuintainError as error:
            fault = error.message
        if fault is None:
            found[task.id or ""] = task
        else:
            faults.append(f"tasks[{place}]: {fault}")
    if faults:
        raise InvalidInput(
            f"{len(faults)} of {len(rows)} tasks cannot be played: {'; '.join(faults[:_MAX_LISTED])}; correct or remove them"
            + (_FORM if name.startswith(PREFIX) else ""),
            code="bad_task_rows",
        )
    return write_reference(Reference(name, {**options, "tasks": str(_store(services, list(found.values())))}))


def _task(row: Mapping[str, Any], split: str) -> Task:
    fields = {name: value for name, value in row.items() if name not in ("script", "setup")}
    calls = {name: row[name] for name in ("script", "setup") if name in row}
    metadata = {**(row.get("metadata") or {}), **calls}
    return task_of_row({"split": split, **fields, "metadata": metadata})


def _fault(task: Task, name: str, split: str, prompts: set[str]) -> str | None:
    """Return why a task is not taken; None: it is."""
    if task.prompt in prompts:
        return "expected a new prompt, got that of an earlier task"
    if task.metadata["split"] != split:
        return f"expected split {split!r}, as in the call, got {task.metadata['split']!r}"
    if not name.startswith(PREFIX):
        return None
    if (fault := unplayable(task)) is not None:
        return fault
    if task.metadata.get("checker") is None and task.metadata.get("answer") is None:
        return "expected a `checker` or an `answer`, got neither"
    if not calls_of(task, "script"):
        return f"expected the calls that solve it as `script`, got none for {clip(task.prompt)!r}"
    return None


def _store(services: Services, tasks: Sequence[Task]) -> Path:
    folder = services.settings.inbox_dir / _FOLDER
    text = write_rows(tasks)
    path = folder / f"{digest(text)}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as error:
        raise Unavailable(
            f"tasks cannot be written to {folder} ({error.strerror}); free the disk or its rights"
        ) from error
    return path


BENCHMARK = "quintain/benchmark"
"""The environment that plays each task where it was recorded."""


def benchmark_reference(
    services: Services, dataset: Dataset, split: SplitName, environment: str | Mapping[str, float] | None
) -> str | InvalidInput | NotFound:
    """Return the reference that plays the tasks of a split of a benchmark, or why they cannot be played.

    Each is played where it was recorded. Questions with answers that were recorded nowhere are asked.

    With an environment it plays all of them.

    Raises:
        InvalidInput: the named environment cannot play them, or is several.
        NotFound: there is no such environment.
        Refused: an environment that the operator has not allowed.
        Unavailable: the package of an environment cannot be imported.
    """
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


def require_plans(dataset: Dataset, split: SplitName, fault: str) -> None:
    """Refuse tasks that can neither be played nor compared by their first call, as those of chats."""
    with (Path(dataset.path) / f"{split}.jsonl").open(encoding="utf-8") as lines:
        if any(json.loads(line).get("plan") for line in lines):
            return
    name = f"{dataset.name[:90]}-turns"
    raise InvalidInput(
        Hint(
            f"expected tasks with an environment, an answer or calls in {dataset.id}, got none ({fault}); measure the loss of the "
            "recorded turns: ",
            call("export_dataset", kind="sft", name=name, filter={"dataset_id": dataset.id}),
            ", then ",
            call("evaluate_agent", agent=..., dataset_id=name, split="train"),
        ),
        code=_NOTHING,
    )


def measuring_step(services: Services, dataset: Dataset) -> Hint:
    """Return how a new benchmark is measured on, or why nothing in it can be played or compared."""
    try:
        played = benchmark_reference(services, dataset, "test", None)
        if not isinstance(played, str):
            require_plans(dataset, "test", played.message.partition("; ")[0])
    except QuintainError as error:  # any other fault may be mended until it is played
        if error.code == _NOTHING:
            return Hint("No agent can be measured on it: ", error.message, ".")
    measure = call("evaluate_agent", agent=own_model(services), dataset_id=dataset.id)
    return Hint("Measure an agent on it with ", measure, "; no method trains on it.")


def chosen_environment(reference: str) -> str | None:
    """Return the environment that a caller named to play a benchmark; None if each task was played where it was recorded."""
    name, options = parse_reference(reference)
    if name == BENCHMARK or (name == QUESTIONS and "file" in options):
        return None
    return write_reference(Reference(name, {option: value for option, value in options.items() if option != "tasks"}))


def trained_on_tasks(
    services: Services,
    agent_id: str | None,
    source_id: str,
    name: str,
    split: SplitName | None = None,
    *,
    by_prompt: bool = False,
) -> str:
    """Return a sentence if an agent has learned from tasks that it is measured on, else nothing.

    `source_id` is the dataset, of which `split` is measured (None: all of it), or the job that played the tasks, whose
    prompts name them with `by_prompt`.
    """
    known, total = services.store.lineage.tasks_trained_on(agent_id or "", source_id, split, by_prompt=by_prompt)
    if not known:
        return ""
    return (
        f"[trained_on_tasks] {agent_id} has learned from runs of {known:,} of the {total:,} tasks of {name}, so its result there "
        "does not measure success on new tasks; measure it on held-out tasks of their environment, or on a benchmark of other runs"
    )


DEFAULT_ENVIRONMENT = "quintain/inventory"
"""Suite of a model that was trained on nothing here."""

_ROWS = 200
"""Rows of a dataset that are read for their environments."""


def default_suite(services: Services, agent: str) -> dict[str, str]:
    """Return the arguments that name the suite of an agent: of its newest training, else the default environment."""
    for one in ancestors_of(services, resolve_agent(services, agent).id or ""):
        job = find(services.store.jobs.get, one.root_job_id or "")
        if job is not None and isinstance(job.spec, TrainSpec | EvolveSpec) and job.spec.environment is not None:
            where = job.spec.environment
            file = parse_reference(where).options.get("file") if parts_of(where) is None else None
            return _questions_beside(services, file) or {"environment": where}
        if one.dataset_id is not None:
            dataset = find(services.store.datasets.get, one.dataset_id)
            if dataset is not None:
                return _suite_of(services, agent, dataset)
    return {"environment": DEFAULT_ENVIRONMENT}


def _questions_beside(services: Services, file: str | None) -> dict[str, str]:
    """Return the suite of the questions in the test split beside a file; empty where there is none."""
    test = None if file is None else test_rows(services, file)
    return (
        {} if test is None or not has_questions(test) else {"environment": f"quintain/math?file={test}", "split": "all"}
    )


def _suite_of(services: Services, agent: str, dataset: Dataset) -> dict[str, str]:
    rows = list(islice(read_rows(Path(dataset.path), "train", kind=dataset.kind), _ROWS))
    named = {task.environment for row in rows if (task := task_of(row)) is not None}
    if len(named) == 1 and (environment := named.pop()) is not None and knows(parse_reference(environment).id):
        return {"environment": environment}
    if dataset.splits.get("validation") or dataset.splits.get("test"):
        return {"dataset_id": dataset.id}
    files = {str(run.source.uri) for row in rows for run in trajectories_of(row) if run.source and run.source.uri}
    if beside := _questions_beside(services, files.pop() if len(files) == 1 else None):
        return beside
    raise InvalidInput(
        f"expected `environment` or `dataset_id`, got neither: {agent} was trained on {dataset.id}, whose rows are of no one "
        "environment and of which nothing is held out; name where to measure, such as quintain/math?file=test.jsonl, or put "
        "the questions of its test split into the inbox as NAME-test.jsonl",
        code="no_suite",
    )
