"""Start the job that writes an agent's files for other programs and checks them against the agent."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import Field

from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.records.agent import Agent
from quintain.records.evaluation import Evaluation
from quintain.records.jobs.handover import (
    Ancestor,
    ExportAgentSpec,
    ExportFormat,
    GgufType,
    Provenance,
    Result,
    TrainingDataset,
)
from quintain.records.jobs.job import EvolveSpec, JobSpec, RecipeSpec, TrainSpec
from quintain.records.jobs.recipe import trained_by
from quintain.tools.data.lineage import require_no_forgotten_sources
from quintain.tools.evaluation.compared_agents import ancestors_of
from quintain.tools.jobs.jobs import start
from quintain.tools.results import JobStarted
from quintain.tools.roots import PushTo, destination_of, writable
from quintain.tools.services import Services, find
from quintain.tools.training.agents import require_loadable, require_weights, resolve_agent
from quintain.tools.training.requests import RequestKey

_RESULTS = 50
"""Most evaluations in a model card; the newest are listed."""


def export_agent(
    services: Services,
    agent: Annotated[str, Field(description="Agent id or name.")],
    format: Annotated[
        ExportFormat,
        Field(description="The LoRA weights, all weights (for MLX too), or a file for llama.cpp and Ollama."),
    ],
    path: Annotated[
        str | None, Field(description="New folder below the exports; default: NAME-VERSION-FORMAT.")
    ] = None,
    gguf_type: Annotated[GgufType, Field(description="Type of the weights in GGUF.")] = "q8_0",
    push_to: PushTo = None,
    request_key: RequestKey = None,
) -> JobStarted:
    """Write an agent's files for transformers, peft, vLLM, llama.cpp or Ollama, with card and settings, as a job.

    Read back, they must act as the agent does, or nothing is left.
    """
    known = require_loadable(require_weights(resolve_agent(services, agent), "be exported"))
    if format == "adapter" and known.model.adapter is None:
        raise InvalidInput(
            f"{known.id} has no adapter: it is a base model, or was trained in all its weights; give `format='merged'`, which "
            "writes all weights",
            code="no_adapter",
        )
    if format == "gguf":
        _require_gguf(known, gguf_type)
    require_no_forgotten_sources(services, known)
    spec = ExportAgentSpec(
        agent=known,
        format=format,
        gguf_type=gguf_type,
        destination=str(_destination(services, known, format, path)),
        push_to=destination_of(services, push_to),
        provenance=_provenance(services, known),
    )
    return start(services, spec, request_key)


def _require_gguf(agent: Agent, gguf_type: GgufType) -> None:
    """Refuse an agent that does not act, and a missing library, before a job starts."""
    if agent.role != "policy":
        raise InvalidInput(
            f"expected an agent that acts, got {agent.id}, a {agent.role.replace('_', ' ')}: programs for GGUF files only write text; give "
            "`format='merged'`",
            code="wrong_role",
        )
    for library in ("xllamacpp", *(["libgguf"] if gguf_type == "q4_k_m" else [])):
        if find_spec(library) is None:
            raise Unavailable(
                f"expected the library {library} for GGUF of type {gguf_type}, got none; pip install 'quintain[gguf]'",
                code="missing_extra",
            )


def _destination(services: Services, agent: Agent, format: str, path: str | None) -> Path:
    """Return the folder that the export will create."""
    name = f"{agent.name}-{agent.version}-{format}"
    folder = services.settings.exports_dir.resolve() / name if path is None else writable(services, path)
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise Conflict(
            f"{str(folder)!r} exists and is not empty; an export overwrites nothing: use what is there, delete it, or give "
            "another `path`",
            code="exists",
        )
    return folder


def _provenance(services: Services, agent: Agent) -> Provenance:
    """Return what the store knows of the agent's origin, for the worker, which does not open the store."""
    learned = services.store.lineage.training_sources(agent.id or "")
    datasets = [services.store.datasets.get(dataset_id, removed=True) for dataset_id in learned.datasets]
    return Provenance(
        ancestors=tuple(_ancestors(services, agent)),
        datasets=tuple(
            TrainingDataset(dataset_id=one.id, name=one.name, kind=one.kind, rows=one.rows, files=one.files)
            for one in datasets
        ),
        trajectories=learned.count,
        results=tuple(map(_result, services.store.evaluations.of_agent(agent.id or "")[:_RESULTS])),
    )


def _ancestors(services: Services, agent: Agent) -> Iterator[Ancestor]:
    """Yield the agent, its parent, and so on to the base model."""
    for current in ancestors_of(services, agent.id or ""):
        job_id, _, stage = (current.job_id or "").partition("/")
        job = find(services.store.jobs.get, job_id) if job_id else None
        spec = None if job is None else job.spec
        yield Ancestor(
            agent=current.id_or_name,
            methods=_methods(spec, stage),
            dataset_id=current.dataset_id,
            environment=spec.environment if isinstance(spec, TrainSpec | EvolveSpec) else None,
            job_id=current.job_id,
        )


def _methods(spec: JobSpec | None, stage: str) -> tuple[str, ...]:
    """Return the methods by which a job trained an agent, in order; of a recipe, up to the agent's stage (`NN-LABEL`)."""
    if isinstance(spec, TrainSpec):
        return (spec.method,)
    if isinstance(spec, EvolveSpec):
        return ("evolve", spec.config.train)
    if isinstance(spec, RecipeSpec):
        trainings = [place for place, one in enumerate(spec.stages) if one.kind == "train"]
        place = int(stage.partition("-")[0]) if stage else trainings[-1]
        return tuple(one.method for one in trained_by(spec.stages, place))
    return ()


def _result(evaluation: Evaluation) -> Result:
    return Result(
        evaluation_id=evaluation.id,
        environment=evaluation.environment,
        split=evaluation.split,
        suite_hash=evaluation.suite_hash,
        n=evaluation.rate.n,
        success_rate=evaluation.rate.value,
        ci_low=evaluation.rate.ci_low,
        ci_high=evaluation.rate.ci_high,
        mean_reward=evaluation.mean_reward,
        loss=evaluation.held_out.loss if evaluation.held_out else None,
        created_at=evaluation.created_at,
    )
