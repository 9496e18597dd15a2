"""Job kind `export_agent`: an agent's files in a new folder that appears complete and verified, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from quintain import __version__
from quintain.artifacts.faults import TransferStopped
from quintain.artifacts.pushing import push
from quintain.errors import Conflict, Unavailable
from quintain.exporters.agent_card import model_card, modelfile
from quintain.files import sha256_of, sync
from quintain.jobs.processes import try_lock_folder, unlock
from quintain.records.jobs.handover import AGENT_FILE, AgentExport, ExportAgentSpec
from quintain.records.jobs.job import JobResult
from quintain.records.protocols import Reporter
from quintain.worker.job_kinds.transfers import Transfer, portable_copy

_DESCRIPTIONS = ("*.md", "Modelfile", "*config.json", AGENT_FILE)
"""Files of an export that can name its base, or the folders of the agent."""


def run(spec: ExportAgentSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Write the agent to a temporary folder, verify it, and rename the folder.

    Raises:
        Conflict: The folder exists, another job is writing it, or the written files do not match the agent.
        Unavailable: The disk rejected a file.
    """
    destination, job_id = Path(spec.destination), directory.name
    before = _read(destination)
    if before is not None and (before.job_id == job_id or _may_push(before, spec, destination)):
        # An earlier attempt, or the job that this one resumes, ended after the rename.
        return _pushed(before, spec, job_id, reporter)
    _require_free(destination)
    with _aside(destination) as aside:
        reporter.phase("importing")
        from quintain.trainers.handover.writing import write_agent
        from quintain.trainers.models.loading import make_durable

        written = write_agent(spec.agent, spec.format, aside, reporter, spec.gguf_type)
        if written is None:
            return JobResult(report={"stopped": True})
        reporter.phase("publishing")
        report = AgentExport(
            quintain=__version__,
            format=spec.format,
            job_id=job_id,
            agent=spec.agent,
            base=written.base,
            template=written.template,
            provenance=spec.provenance,
            parity=written.parity,
            versions=written.versions,
            files={},
            bytes=0,
            notes=(*written.notes, *_notes(spec)),
        )
        _write(aside / "README.md", model_card(report))
        if (ollama := modelfile(report, written.architecture)) is not None:
            _write(aside / "Modelfile", ollama)
        files = {str(path.relative_to(aside)): path for path in sorted(aside.rglob("*")) if path.is_file()}
        hashes = {name: sha256_of(path) for name, path in files.items()}
        size = sum(path.stat().st_size for path in files.values())
        report = report.model_copy(update={"files": hashes, "bytes": size})
        _write(aside / AGENT_FILE, report.model_dump_json(indent=2) + "\n")
        _share(aside)
        make_durable(aside)
        try:
            aside.rename(destination)  # fails if a non-empty folder exists
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                raise _exists_error(destination) from None
            raise
        sync(destination.parent)
    return _pushed(report, spec, job_id, reporter)


def _may_push(export: AgentExport, spec: ExportAgentSpec, folder: Path) -> bool:
    """Whether a complete export of an earlier job is the one that this job is to push."""
    same = spec.push_to is not None and (export.agent, export.format) == (spec.agent, spec.format)
    return same and all(
        (folder / name).is_file() and sha256_of(folder / name) == known for name, known in export.files.items()
    )


def _pushed(export: AgentExport, spec: ExportAgentSpec, job_id: str, reporter: Reporter) -> JobResult:
    """Upload a finished export, without paths of this machine, if that was asked for."""
    destination = Path(spec.destination)
    if spec.push_to is None:
        return _result(export, destination)
    reporter.phase("uploading")
    try:
        model, base = export.agent.model, str(export.base["name"])
        local = (model.path, model.adapter or "", base)
        with portable_copy(destination, job_id, _DESCRIPTIONS, local) as (folder, changed):
            _update_hashes(folder, changed)
            location = push(folder, spec.push_to, "model", Transfer(reporter))
    except TransferStopped:
        return JobResult(report={"stopped": True})
    result = _result(export, destination)
    return result.model_copy(update={"report": {**result.report, "pushed_to": location}})


def _update_hashes(folder: Path, changed: Sequence[str]) -> None:
    """Write hashes and size of changed files into the record of a copied export."""
    if others := [name for name in changed if name != AGENT_FILE]:
        record = AgentExport.model_validate_json((folder / AGENT_FILE).read_bytes())
        files = record.files | {name: sha256_of(folder / name) for name in others}
        size = sum((folder / name).stat().st_size for name in files)
        record = record.model_copy(update={"files": files, "bytes": size})
        (folder / AGENT_FILE).unlink()  # it may be a link
        _write(folder / AGENT_FILE, record.model_dump_json(indent=2) + "\n")


def _notes(spec: ExportAgentSpec) -> Iterator[str]:
    """Yield notes on what the export does not contain."""
    if spec.format == "merged" and spec.agent.model.adapter is None:
        state = "all weights trained" if spec.provenance.ancestors[0].methods else "not trained here"
        yield f"{spec.agent.id} has no adapter ({state}), so nothing was merged: the weights are a copy"
    if spec.agent.model.quantization is not None:
        how = {"nf4": "NF4 with double quantisation", "int8": "int8"}[spec.agent.model.quantization]
        if spec.format == "adapter":
            yield f"the adapter was trained on its base in {how} (bitsandbytes), except embeddings and head: load the base so"
        else:
            yield f"the linear layers have the dequantised values of the agent's base in {how}"


def _result(report: AgentExport, destination: Path) -> JobResult:
    facts = {
        "agent": report.agent.id,
        "format": report.format,
        "path": str(destination),
        "files": sorted([*report.files, AGENT_FILE]),
        "bytes": report.bytes,
        "parity": report.parity.model_dump(mode="json", exclude_none=True),
        "notes": list(report.notes),
    }
    return JobResult(report=facts)


def _read(folder: Path) -> AgentExport | None:
    """Return the export record in a folder, or None."""
    try:
        return AgentExport.model_validate_json((folder / AGENT_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _require_free(destination: Path) -> None:
    if destination.is_symlink() or destination.is_file() or (destination.is_dir() and any(destination.iterdir())):
        raise _exists_error(destination)


def _exists_error(destination: Path) -> Conflict:
    return Conflict(
        f"expected an empty or new folder, got {destination}; exports overwrite nothing, pass another `path`",
        code="exists",
    )


@contextmanager
def _aside(destination: Path) -> Iterator[Path]:
    """Yield a locked temporary folder beside the destination, which is removed unless it was renamed.

    The lock ends with its process, so a later attempt can reuse the folder of a killed one.
    """
    aside = destination.with_name(f".{destination.name}.partial")
    try:
        aside.mkdir(parents=True, exist_ok=True)
        lock = try_lock_folder(aside)
    except OSError as error:
        raise Unavailable(
            f"cannot write to {destination.parent}: {error.strerror}; pass another `path`, or give this user write permission"
        ) from None
    if lock is None:
        raise Conflict(
            f"expected no other writer of {destination}, but another job is writing it; wait, or pass another `path`"
        )
    try:
        for path in aside.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield aside
    finally:
        with suppress(FileNotFoundError):  # it was renamed, and another job may have created it again
            if os.path.samestat(os.fstat(lock), aside.stat()):
                shutil.rmtree(aside, ignore_errors=True)
        unlock(lock)


def _share(folder: Path) -> None:
    """Make every file as readable as the umask allows: some libraries write weights for their owner only."""
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
