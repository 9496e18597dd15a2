"""The agents of jobs: what a job produced, and its checkpoints as agents."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

from quintain.errors import Conflict, InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.jobs.job import EvolveSpec, Job, RecipeSpec, TrainSpec
from quintain.records.record import clip
from quintain.tools.services import Services, find
from quintain.tools.training.model_folders import is_model, model_in, role_in

_CHECKPOINTS = "checkpoints"

_STEP = re.compile(r"step-0*([0-9]{1,9})")

_LISTED = 5
"""Checkpoints that a message lists."""


def agent_of_job(services: Services, reference: str) -> Agent | None:
    """Return the agent of a job, of one of its stages or of a checkpoint; None if the reference names no known job.

    Args:
        services: Where jobs and agents are stored.
        reference: `job-ID`, `job-ID/STAGE`, `job-ID/checkpoints/step-N`, or a path of that below the jobs' folder. A job without an
            agent stands for its newest checkpoint.

    Raises:
        NotFound: the job has neither an agent nor such a checkpoint.
        InvalidInput: the job does not train.
        Conflict: the checkpoint was written by an earlier version.
    """
    inside = _below_jobs(services, reference)
    job = find(services.store.jobs.get, inside[0]) if inside else None
    if job is None or inside is None:
        return None
    if not isinstance(job.spec, TrainSpec | RecipeSpec | EvolveSpec):
        raise InvalidInput(
            f"expected a job that trains, got {job.id}, which is of kind {job.kind}; name the agent itself",
            code="no_agent",
        )
    own = {agent.job_id: agent for agent in services.store.agents.of_job(job.id)}
    if found := own.get("/".join(inside)):
        return found
    if len(inside) > 1:
        return _agent_of_checkpoint(services, job, _checkpoint(services, job, inside[1:]))
    if checkpoints := _checkpoints(_folder(services, job) / _CHECKPOINTS):
        return _agent_of_checkpoint(services, job, checkpoints[-1])
    if stages := [agent for name, agent in own.items() if name and _CHECKPOINTS not in name]:
        return stages[-1]
    raise NotFound(
        Hint(
            f"expected a job with an agent or a checkpoint, got {job.id}, which is {job.status} and has neither; ",
            call("get_job", job_id=job.id),
            " shows its state",
        ),
        code="model_not_found",
    )


def _below_jobs(services: Services, reference: str) -> tuple[str, ...] | None:
    """Return the parts of a reference below the folder of the jobs, the id first; None if it lies elsewhere.

    `step-20` means `step-00000020`.
    """
    parts = Path(reference).parts
    root = services.settings.jobs_dir
    if parts and not Path(reference).is_absolute():
        if not parts[0].startswith("job-"):
            return None
        inside = (root / reference).resolve()
    else:
        inside = Path(reference).resolve()
    if not inside.is_relative_to(root.resolve()) or inside == root.resolve():
        return None
    *before, last = inside.relative_to(root.resolve()).parts
    step = _STEP.fullmatch(last)
    return (*before, f"step-{int(step[1]):08d}" if step else last)


def _folder(services: Services, job: Job) -> Path:
    return services.settings.jobs_dir / job.id


def _checkpoint(services: Services, job: Job, inside: tuple[str, ...]) -> Path:
    """Return the folder of a checkpoint."""
    parent, name = _folder(services, job).joinpath(*inside[:-1]), inside[-1]
    if parent.name == _CHECKPOINTS and (parent / name / "manifest.json").is_file():
        return parent / name
    known = ", ".join(path.name for path in _checkpoints(parent)[-_LISTED:])
    raise NotFound(
        Hint(
            f"{job.id} has no checkpoint {clip('/'.join(inside))!r}{f', but {known}' if known else ''}; "
            f"name one of its checkpoints as {job.id}/checkpoints/step-N, or the job for its agent or newest checkpoint; ",
            call("get_job", job_id=job.id),
            " shows its state",
        ),
        code="model_not_found",
    )


def _checkpoints(folder: Path) -> list[Path]:
    """Return the complete checkpoints in a folder, the oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / "manifest.json").is_file())


def _agent_of_checkpoint(services: Services, job: Job, checkpoint: Path) -> Agent:
    """Return the agent of a checkpoint, whose files are kept when the job deletes them.

    Raises:
        Conflict: the checkpoint was written by an earlier version, or deleted by now.
    """
    spec = job.spec
    assert isinstance(spec, TrainSpec | RecipeSpec | EvolveSpec)
    step = _step_of(checkpoint)
    inside = str(checkpoint.relative_to(_folder(services, job)))
    if checkpoint.name == "best":
        inside = f"{inside}-{step}"
    if known := [a for a in services.store.agents.of_job(job.id) if a.job_id == f"{job.id}/{inside}"]:
        return known[-1]
    kept = _keep(checkpoint, services.settings.agents_dir / f"{spec.name}-step-{step}-{uuid.uuid4().hex[:10]}")
    if isinstance(spec, TrainSpec) and spec.config.lora is not None:
        model = spec.start_model.model_copy(update={"adapter": str(kept)})
    else:
        model = model_in(replace(services, trusted=True), kept, str(kept))
    agent = Agent(
        name=f"{spec.name[:80]}-step-{step}",
        model=model,
        system_prompt=spec.agent.system_prompt,
        sampling=spec.agent.sampling,
        template=spec.agent.template,
        role=role_in(kept),
        parent=spec.agent.id,
        dataset_id=spec.dataset_id if isinstance(spec, TrainSpec) else None,
        job_id=f"{job.id}/{inside}",
        description=f"{job.id} after step {step}.",
    )
    return services.store.agents.add(agent, services.clock())


def _step_of(checkpoint: Path) -> int:
    try:
        manifest = json.loads((checkpoint / "manifest.json").read_bytes())
        step, names = int(manifest["step"]), manifest["files"].keys()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise _gone(checkpoint) from None
    if not is_model(checkpoint) or "weights.safetensors" in names:
        raise Conflict(
            f"expected a checkpoint of this version, got {checkpoint.name} of an earlier one, which is no model by itself; resume "
            "its job, whose next checkpoint is one",
            code="checkpoint_outdated",
        )
    return step


def _keep(checkpoint: Path, kept: Path) -> Path:
    """Give the files of a model a second name, under which the job does not delete them; copy them across file systems."""
    aside = kept.with_name(f".{kept.name}.partial")
    aside.mkdir(parents=True)
    try:
        for path in sorted(checkpoint.iterdir()):
            if path.name in ("state.pt", "manifest.json"):
                continue
            try:
                os.link(path, aside / path.name)
            except FileNotFoundError:
                raise
            except OSError:  # no hard links here
                shutil.copyfile(path, aside / path.name)
        aside.rename(kept)
    except FileNotFoundError:
        raise _gone(checkpoint) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return kept


def _gone(checkpoint: Path) -> Conflict:
    return Conflict(
        f"checkpoint {checkpoint.name} was deleted while it was read, because its job keeps only the newest; name the job itself",
        code="checkpoint_gone",
    )
