"""Agents of models in folders and files, and of jobs: base models, adapters, exports, results and checkpoints."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from quintain.artifacts.locations import is_url
from quintain.errors import Conflict, InvalidInput, NotFound, QuintainError
from quintain.next_step import Hint, call
from quintain.records.agent import Agent
from quintain.records.jobs.handover import AGENT_FILE, AgentExport
from quintain.records.jobs.job import EvolveSpec, Job, RecipeSpec, TrainSpec
from quintain.records.wording import clip
from quintain.tools.roots import readable, resolve_path
from quintain.tools.services import Services, find
from quintain.tools.training.model_folders import is_model, model_in, read_object, role_in

_MAX_EXPORT_RECORD = 16 * 2**20
"""Bytes of the record in an exported folder."""

_COMPARED = 200
"""Newest agents whose weights are compared with those of a folder."""

_CHECKPOINTS = "checkpoints"

_STEP = re.compile(r"step-0*([0-9]{1,9})")

_LISTED = 5
"""Checkpoints that a message lists."""


def store_base(services: Services, base: Agent) -> Agent:
    """Return the agent of a base model: the newest version with the same content, else a new one.

    A model with a reserved name gets another one.
    """
    if base.name in {"starter", "expert"} and (base.model.source != base.name or base.model.adapter):
        base = base.model_copy(update={"name": f"{base.name}-2"})
    for known in _versions(services, base.name):
        if known.model_copy(update={"id": None, "version": None, "created_at": None}) == base:
            return known
    return services.store.agents.add(base, services.clock())


def _versions(services: Services, name: str) -> Iterator[Agent]:
    """Yield the stored versions of an agent, the newest first."""
    newest = services.store.agents.find(name)
    for version in range((newest and newest.version) or 0, 0, -1):
        if (known := services.store.agents.find(f"{name}@{version}")) is not None:
            yield known


def path_of(services: Services, reference: str) -> str | None:
    """Return the path that a reference names: an existing folder or GGUF file, or what is written as a path or URL.

    Paths begin at the inbox, else at the exports, else at the home folder (`exports/m1`), as results name them. For a
    trusted caller the working folder goes before them.

    Raises:
        NotFound: the name is too long for a file, or `~` of a user without a home.
    """
    try:
        written = Path(reference).expanduser()
        settings = services.settings
        homes = (settings.inbox_dir, settings.exports_dir, settings.home)
        for start in (Path(), *homes) if services.trusted else homes:
            if (path := start / written).is_dir() or (path.suffix == ".gguf" and path.is_file()):
                return str(path)
    except (OSError, RuntimeError) as error:
        raise NotFound(
            f"cannot read folder {clip(reference)!r} ({type(error).__name__}); give an agent id or name, "
            "'starter', a folder or a Hub name",
            code="model_not_found",
        ) from None
    is_path = reference.startswith(("/", ".", "~")) or reference.endswith(".gguf") or is_url(reference)
    return reference if is_path else None


def agent_of_path(services: Services, path: str, reference: str) -> Agent:
    """Return the agent of a model folder or file."""
    # An agent's own folder names that agent. Nothing in it is read, so it needs no root.
    if known := _trained_here(services, resolve_path(services, path, services.settings.inbox_dir)):
        return known
    try:
        resolved = readable(services, path, "model")
    except QuintainError as error:
        if not path.startswith(("http://", "https://")):
            raise
        raise type(error)(
            f"{error.message}; a model that a server gives out there is `endpoint:NAME`, with the address as base_url of [NAME] in "
            f"{services.settings.endpoints_file}, which the operator writes",
            code=error.code,
        ) from None
    model = model_in(services, resolved, reference)
    written = resolved.stem if resolved.suffix == ".gguf" else resolved.name
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", written).strip("-._")[:100] or "model"
    about = f"Adapter on {Path(model.path).name}." if model.adapter else ""
    base = Agent(name=name, model=model, role=role_in(resolved), description=about)
    return store_base(services, _with_origin(services, base, resolved))


def _trained_here(services: Services, folder: Path) -> Agent | None:
    """Return the agent whose files lie in a folder of the home folder; None if it is not such a folder."""
    if not folder.is_relative_to(services.settings.agents_dir.resolve()):
        return None
    name = folder.name.rpartition("-")[0]  # as `start_new_agent` names it
    known = _versions(services, name) if name else ()
    return next((one for one in known if Path(one.model.own_path).resolve() == folder), None)


def _with_origin(services: Services, base: Agent, folder: Path) -> Agent:
    """Return the agent with settings and parent of the one whose files these are: an export of it, or a copy."""
    exported = _exported(folder)
    if exported is None:
        original = trained_agent(services, Path(base.model.own_path))
        return base if original is None else _with_settings(base, original, original.id)
    here = services.store.agents.find(exported.id) if exported.id else None
    same = here is not None and (here.created_at, here.model) == (exported.created_at, exported.model)
    named = services.store.agents.find(exported.name)
    if named is None or named.model == base.model:  # else the bare name would mean the export from now on
        base = base.model_copy(update={"name": exported.name})
    return _with_settings(base, exported, exported.id if same else None)


def _with_settings(base: Agent, origin: Agent, parent: str | None) -> Agent:
    kept = {name: getattr(origin, name) for name in ("system_prompt", "sampling", "template", "held_out")}
    return base.model_copy(update={**kept, "parent": parent})


def _exported(folder: Path) -> Agent | None:
    """Return the agent of which `export_agent` wrote the folder."""
    record = (folder.parent if folder.suffix == ".gguf" else folder) / AGENT_FILE
    try:
        return AgentExport.model_validate(read_object(record, _MAX_EXPORT_RECORD)).agent
    except (OSError, ValueError, TypeError, RecursionError):  # none, or a file of another program
        return None


def trained_agent(services: Services, folder: Path) -> Agent | None:
    """Return the trained agent whose weights a folder has a copy of, such as the `output_dir` of a dict call; None: unknown."""
    weights = _weights(folder)
    if weights is None:
        return None
    for agent in services.store.agents.page(limit=_COMPARED).items:
        other = None if agent.job_id is None else _weights(Path(agent.model.own_path))
        try:  # of different weights, the first block differs
            if other is not None and other.name == weights.name and filecmp.cmp(other, weights, shallow=False):
                return agent
        except OSError:  # deleted by now
            continue
    return None


def _weights(folder: Path) -> Path | None:
    """Return the first file of weights in a model's folder; None if it has none."""
    found = (path for path in sorted(folder.glob("*.safetensors")) if path.name != "value_head.safetensors")
    path = next(found, None)
    return path if path is not None and path.stat().st_size else None


def agent_of_job(services: Services, reference: str) -> Agent | None:
    """Return the agent of a job, of one of its stages or of a checkpoint; None if the reference names no known job.

    A reference is `job-ID`, `job-ID/STAGE`, `job-ID/checkpoints/step-N`, or a path of that below the jobs' folder. A
    job without an agent means its newest checkpoint.

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
        below = root / reference if parts[0].startswith("job-") else root.parent / reference
        inside = below.resolve()
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
    """Return the agent of a checkpoint, whose files are kept when the job deletes them."""
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
            f"expected a checkpoint of this version, got {checkpoint.name} of an earlier one, which is not a model by itself; resume "
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
