"""The job kind `export_agent`: an agent's files in a folder of their own, which appears whole, checked, or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import ValidationError

from quintain import __version__
from quintain.datasets.manifest import sha256_of
from quintain.errors import Conflict, Unavailable
from quintain.exporters.agent_card import model_card, modelfile
from quintain.jobs.processes import try_lock_folder, unlock
from quintain.records.handover import AGENT_FILE, ExportAgentSpec, HandedOver
from quintain.records.job import JobResult
from quintain.records.seams import Reporter


def run(spec: ExportAgentSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Write the agent aside, read it back, compare, and give the folder its name.

    Raises:
        Conflict: the folder is taken by now, another job is writing it, or what was written is not the agent.
        Unavailable: the disk does not take it.
    """
    destination, job_id = Path(spec.destination), directory.name
    if (before := _read(destination)) is not None and before.job_id == job_id:
        return _result(before, destination)  # an earlier attempt died right after the end
    _require_free(destination)
    with _aside(destination) as aside:
        reporter.phase("importing")
        from quintain.trainers.handover.writing import write_agent
        from quintain.trainers.models import make_durable, sync

        written = write_agent(spec.agent, spec.format, aside, reporter)
        if written is None:
            return JobResult(report={"stopped": True})
        reporter.phase("publishing")
        told = HandedOver(
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
        _write(aside / "README.md", model_card(told))
        if (ollama := modelfile(told, written.architecture)) is not None:
            _write(aside / "Modelfile", ollama)
        files = {str(path.relative_to(aside)): path for path in sorted(aside.rglob("*")) if path.is_file()}
        hashes = {name: sha256_of(path) for name, path in files.items()}
        size = sum(path.stat().st_size for path in files.values())
        told = told.model_copy(update={"files": hashes, "bytes": size})
        _write(aside / AGENT_FILE, told.model_dump_json(indent=2) + "\n")
        make_durable(aside)
        try:
            aside.rename(destination)  # refused by the system where there is a folder with files by now
        except OSError as error:
            if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                raise _taken(destination) from None
            raise
        sync(destination.parent)
    return _result(told, destination)


def _notes(spec: ExportAgentSpec) -> Iterator[str]:
    """What people might take it for, and it is not."""
    if spec.format == "merged" and spec.agent.model.adapter is None:
        what = "trained in all its weights" if spec.provenance.ancestors[0].methods else "not trained here"
        yield f"{spec.agent.id} has no adapter ({what}), so nothing was merged: these are its weights, copied"


def _result(told: HandedOver, destination: Path) -> JobResult:
    report = {
        "agent": told.agent.id,
        "format": told.format,
        "path": str(destination),
        "files": sorted([*told.files, AGENT_FILE]),
        "bytes": told.bytes,
        "parity": told.parity.model_dump(mode="json", exclude_none=True),
        "notes": list(told.notes),
    }
    return JobResult(report=report)


def _read(folder: Path) -> HandedOver | None:
    """What a folder says that was handed over; None where none was."""
    try:
        return HandedOver.model_validate_json((folder / AGENT_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _require_free(destination: Path) -> None:
    if destination.is_symlink() or destination.is_file() or (destination.is_dir() and any(destination.iterdir())):
        raise _taken(destination)


def _taken(destination: Path) -> Conflict:
    return Conflict(
        f"{destination} exists and is not empty; an export overwrites nothing: give another `path`", code="exists"
    )


@contextmanager
def _aside(destination: Path) -> Iterator[Path]:
    """An empty folder beside the destination, ours until it gets its name; what is left of it in the end is removed.

    Its lock dies with its holder, so that a later attempt takes over what a killed one left.
    """
    aside = destination.with_name(f".{destination.name}.partial")
    try:
        aside.mkdir(parents=True, exist_ok=True)
        lock = try_lock_folder(aside)
    except OSError as error:
        raise Unavailable(
            f"{destination.parent} cannot be written ({error.strerror}); name another folder, or let this user write there"
        ) from None
    if lock is None:
        raise Conflict(f"another job is writing {destination}; wait for it, or give another `path`")
    try:
        for path in aside.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield aside
    finally:
        with suppress(FileNotFoundError):  # it has its name, and another job may have begun beside it
            if os.path.samestat(os.fstat(lock), aside.stat()):
                shutil.rmtree(aside, ignore_errors=True)
        unlock(lock)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
