"""Default suites: without environment and dataset, an agent is measured on the kind of tasks that it was trained on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from quintain.datasets.rows import read_rows, task_of, trajectories_of
from quintain.environments.references import parse_reference
from quintain.environments.registry import knows
from quintain.errors import InvalidInput
from quintain.records.agent import Agent
from quintain.records.dataset import Dataset
from quintain.records.jobs.job import EvolveSpec, TrainSpec
from quintain.tools.data.row_references import has_questions, test_rows
from quintain.tools.evaluation.learning_curves import ancestors_of
from quintain.tools.services import Services, find
from quintain.tools.training.model_references import trained_agent

DEFAULT_ENVIRONMENT = "quintain/inventory"
"""Suite of a model that was trained on nothing here."""

_ROWS = 200
"""Rows of a dataset that are read for their environments."""


def default_suite(services: Services, agent: str) -> dict[str, str]:
    """Return the arguments that name the suite of an agent: of its newest training, else the default environment."""
    known = services.store.agents.find(agent) or trained_agent(services, Path(agent).expanduser())
    for one in ancestors_of(services, known.id or "") if known is not None else ():
        if (environment := _environment_of_job(services, one)) is not None:
            return {"environment": environment}
        if one.dataset_id is not None:
            dataset = find(services.store.datasets.get, one.dataset_id)
            if dataset is not None:
                return _suite_of(services, agent, dataset)
    return {"environment": DEFAULT_ENVIRONMENT}


def _environment_of_job(services: Services, agent: Agent) -> str | None:
    job = find(services.store.jobs.get, agent.job_id.partition("/")[0]) if agent.job_id else None
    return job.spec.environment if job is not None and isinstance(job.spec, TrainSpec | EvolveSpec) else None


def _suite_of(services: Services, agent: str, dataset: Dataset) -> dict[str, str]:
    rows = list(islice(read_rows(Path(dataset.path), "train", kind=dataset.kind), _ROWS))
    named = {task.environment for row in rows if (task := task_of(row)) is not None}
    if len(named) == 1 and (environment := named.pop()) is not None and _is_here(environment):
        return {"environment": environment}
    if dataset.splits.get("validation") or dataset.splits.get("test"):
        return {"dataset_id": dataset.id}
    files = {str(run.source.uri) for row in rows for run in trajectories_of(row) if run.source and run.source.uri}
    if len(files) == 1 and (test := test_rows(services, files.pop())) is not None and has_questions(test):
        return {"environment": f"quintain/math?file={test}", "split": "all"}
    raise InvalidInput(
        f"expected `environment` or `dataset_id`, got neither: {agent} was trained on {dataset.id}, whose rows are of no one "
        "environment and of which nothing is held out; name where to measure, such as quintain/math?file=test.jsonl, or put "
        "the questions of its test split into the inbox as NAME-test.jsonl",
        code="no_suite",
    )


def _is_here(environment: str) -> bool:
    return knows(parse_reference(environment).id)
