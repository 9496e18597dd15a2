"""Reports of stored things: jobs, evaluations, comparisons, agents and datasets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath

from quintain.environments.references import short_reference
from quintain.errors import InvalidInput, NotFound
from quintain.evaluation.reports.figures import Figure
from quintain.evaluation.reports.report import Report, Section, Table, comparison_report, evaluation_report
from quintain.next_step import Hint, call
from quintain.records.agent import Agent, Agreement
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Evaluation
from quintain.records.jobs.job import Job, JobResult
from quintain.records.labels.judging import Endpoint
from quintain.records.record import Record
from quintain.records.wording import clip, counted, number_text
from quintain.tools.jobs.descriptions import job_label
from quintain.tools.jobs.evolution_report import evolution_sections
from quintain.tools.jobs.figures import figure_of
from quintain.tools.services import Services, find

_MOST_CHARS = 2000
"""Characters of a value in a table."""

_SHORT = 60
"""Characters of a cell in a table of objects."""

_OWN_FOLDERS = frozenset({"output_dir", "cache_dir", "datasets_dir", "dataset_path", "dataset_files", "mirror"})
"""Fields of a request that are of this machine alone."""

_LABELS = {"n_unknown": "without a verdict", "n_error": "errors"}
"""Counts of a result in words."""

_OF_EVALUATION = {*Evaluation.model_fields, "n", "success"} - {"dataset_id"}
"""Members of a job's result that its evaluation states, too."""

_EMPTY: tuple[object, ...] = (None, "", {}, [], ())


def report_of(services: Services, id: str) -> tuple[Report, Figure | None]:
    """Return the report of a stored thing and its figure, if it has data to draw.

    Raises:
        NotFound: nothing has this id.
    """
    store = services.store
    if id.startswith("cmp-"):
        return comparison_report(store.evaluations.get_comparison(id)), figure_of(services, id)
    if id.startswith("eval-"):
        return evaluation_report(store.evaluations.get(id)), figure_of(services, id)
    if id.startswith("job-"):
        return job_report(services, store.jobs.get(id)), _figure(services, id)
    if id.startswith("ds-"):
        return dataset_report(store.datasets.get(id)), None
    agent = store.agents.find(id)
    if agent is None and (dataset := find(store.datasets.get, id)) is not None:
        return dataset_report(dataset), None
    if agent is None:
        raise NotFound(
            Hint(
                f"expected the id of a job, comparison, evaluation, agent or dataset, got {id!r}; see ",
                call("list_jobs"),
                " or ",
                call("list_library", kind="agents"),
            )
        )
    trained = None if agent.root_job_id is None else _figure(services, agent.root_job_id)
    return agent_report(services, agent), trained


def job_report(services: Services, job: Job) -> Report:
    """Build the report of a job: result, settings, warnings."""
    facts: dict[str, object] = {
        "job": job.id,
        "status": job.status,
        "steps": f"{job.step} of {job.total_steps or '?'}",
        "attempts": job.attempt,
        "started": job.started_at,
        "ended": job.ended_at,
        "resumed from": job.resumed_from,
        "error": None if job.error is None else f"[{job.error.code}] {job.error.message}",
    }
    sections = [Section("Job", table=_facts(facts))]
    if job.result is not None:
        sections += _result_sections(services, job.result)
    request = {name: getattr(job.spec, name) for name in type(job.spec).model_fields if name not in _OWN_FOLDERS}
    config = request.pop("config", None)
    if isinstance(environment := request.get("environment"), str):
        request["environment"] = short_reference(environment)
    sections.append(Section("Request", table=_facts(request)))
    if isinstance(config, Record):
        sections.append(
            Section("Settings", table=_facts({name: getattr(config, name) for name in type(config).model_fields}))
        )
    if job.warnings:
        sections.append(Section("Warnings", job.warnings))
    return Report(job_label(services, job), tuple(sections))


def _result_sections(services: Services, result: JobResult) -> list[Section]:
    """Return what a job brought. What its evaluation or its rounds say stands once, in their own sections."""
    evaluation = find(services.store.evaluations.get, result.evaluation_id) if result.evaluation_id else None
    known = {name: getattr(result, name) for name in type(result).model_fields}
    report, runs, rate = known.pop("report"), known.pop("trajectories"), known.pop("success_rate")
    known |= {"runs": None if runs is None else runs.count, "success": None if rate is None else f"{rate:.1%}"}
    rounds = evolution_sections(result) if "rounds" in report else ()
    known |= {} if rounds else report
    if evaluation is not None:
        known = {name: value for name, value in known.items() if name not in _OF_EVALUATION}
    listed = {name: rows for name, rows in known.items() if _is_of_objects(rows)}
    facts = {_LABELS.get(name, name.removesuffix("_id")): value for name, value in known.items() if name not in listed}
    sections = [Section("Result", table=_facts(facts)), *rounds]
    sections += [Section(name.replace("_", " ").capitalize(), table=_table(rows)) for name, rows in listed.items()]
    if evaluation is not None:
        sections += [
            one._replace(heading=f"Evaluation: {one.heading.lower()}") for one in evaluation_report(evaluation).sections
        ]
    return sections


def agent_report(services: Services, agent: Agent) -> Report:
    """Build the report of an agent: where it comes from, and how it did in each evaluation."""
    known = agent.without_install_path()
    facts = {
        "agent": known.id,
        "description": known.description,
        "role": known.role,
        "trained from": known.parent,
        "dataset": known.dataset_id,
        "job": known.job_id,
        "model": known.model.source,
        "sampling": known.sampling.summary,
        "held-out accuracy": known.held_out,
        "created": known.created_at,
    }
    evaluations = services.store.evaluations.of_agent(agent.id or "")
    rows = tuple(
        (one.id, short_reference(one.environment), one.split, _rate(one), str(one.rate.n), one.purpose)
        for one in evaluations
    )
    header = ("evaluation", "environment", "split", "success, 95 % interval", "episodes", "purpose")
    sections = [Section("Agent", table=_facts(facts))]
    if rows:
        sections.append(Section("Evaluations, newest first", table=Table(header, rows)))
    return Report(f"Agent {agent.id_or_name}", tuple(sections))


def dataset_report(dataset: Dataset) -> Report:
    """Build the report of a dataset: its content, what was left out, and whose text it is."""
    facts = {
        "dataset": dataset.id,
        "kind": dataset.kind,
        "rows": dataset.rows,
        "splits": dataset.splits,
        "environments": dataset.environments,
        "seed": dataset.seed,
        "created": dataset.created_at,
    }
    sections = [Section("Dataset", dataset.licence_notes, _facts(facts))]
    tables: dict[str, tuple[tuple[str, str], Mapping[str, object]]] = {
        "Runs left out": (("reason", "runs"), dataset.dropped),
        "Models whose steps it has": (("model", "agent steps"), dataset.source_models),
        "Files": (("file", "SHA-256"), dataset.files),
    }
    for heading, (header, counts) in tables.items():
        if counts:
            sections.append(Section(heading, table=Table(header, tuple((str(k), str(v)) for k, v in counts.items()))))
    return Report(f"Dataset {dataset.name}: {counted(dataset.rows, 'row')}", tuple(sections))


def _figure(services: Services, job_id: str) -> Figure | None:
    """Return the figure of a job; None if it has no data or is not stored here."""
    try:
        return figure_of(services, job_id)
    except (InvalidInput, NotFound):
        return None


def _rate(evaluation: Evaluation) -> str:
    rate = evaluation.rate
    if rate.value is None or rate.ci_low is None or rate.ci_high is None:
        return "unknown"
    return f"{rate.value:.1%} [{rate.ci_low:.1%}, {rate.ci_high:.1%}]"


def _facts(facts: Mapping[str, object]) -> Table:
    """Return names and values; what is unknown or empty is left out."""
    rows = [
        (name.replace("_", " "), clip(_plain(value), _MOST_CHARS))
        for name, value in facts.items()
        if value not in _EMPTY
    ]
    return Table(("", ""), tuple(rows))


def _is_of_objects(value: object) -> bool:
    """Whether a value is a list of objects, as the rounds of an evolution are."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _table(objects: list[Mapping[str, object]]) -> Table:
    """Return objects as rows, with the members that are short in all of them as columns."""
    names = dict.fromkeys(name for one in objects for name in one)
    cells = {name: ["" if one.get(name) in _EMPTY else _plain(one[name]) for one in objects] for name in names}
    shown = {name: column for name, column in cells.items() if max(map(len, column)) <= _SHORT}
    titles = (_LABELS.get(name, name.removesuffix("_id")).replace("_", " ") for name in shown)
    return Table(tuple(titles), tuple(zip(*shown.values(), strict=True)))


def _plain(value: object) -> str:
    """Return a value for people elsewhere: agents and endpoints by name, files without their folders."""
    match value:
        case Agent():
            return value.id_or_name
        case Endpoint():
            return value.name
        case Agreement():
            return str(value)
        case Record():
            known = {name: getattr(value, name) for name in sorted(value.model_fields_set)}
            return _plain(known)
        case dict():
            return ", ".join(f"{name}: {_plain(inner)}" for name, inner in value.items() if inner not in _EMPTY)
        case str():
            return f"…/{PurePath(value).name}" if PurePath(value).is_absolute() else str(value)
        case bool():
            return "yes" if value else "no"
        case float():
            return number_text(value)
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S} UTC"
        case list() | tuple() | frozenset():
            return ", ".join(map(_plain, value))
        case _:
            return str(value)
