"""Files of runs for jobs, which never open the database; deleted when one of the runs is forgotten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

from quintain.errors import NotFound, Unavailable, disk_remedy
from quintain.files import created
from quintain.next_step import Hint, call
from quintain.records.jobs.run_jobs import RunsFile
from quintain.records.trajectory import Trajectory
from quintain.tools.services import Services

KEPT = timedelta(days=30)
"""How long a file stays after its last use by a job."""
JUDGEMENTS = "judgements"
"""Cache folder with the answers of judges."""

_NEWLY = ".new"


def write_runs(services: Services, runs: Iterable[Trajectory]) -> RunsFile:
    """Write runs to a file for a job, in order; equal runs share one file.

    Raises:
        NotFound: there is no run.
        Unavailable: the disk does not take them.
    """
    folder = _folder(services)
    aside = folder / f".{uuid4().hex}{_NEWLY}"
    digest, n = hashlib.sha256(), 0
    try:
        with created(aside, 0o600) as file:
            for run in runs:
                line = run.model_dump_json().encode() + b"\n"
                digest.update(line)
                file.write(line)
                n += 1
        if not n:
            search = call("search_trajectories")
            raise NotFound(Hint("no run was chosen; ", search, " lists stored runs"), code="nothing_matches")
        path = folder / f"{digest.hexdigest()}.jsonl"
        aside.replace(path)
        _prune(services, folder)
    except OSError as error:
        raise Unavailable(f"runs cannot be written to {folder} ({error.strerror}); {disk_remedy(error)}") from error
    finally:
        aside.unlink(missing_ok=True)
    return RunsFile(path=str(path), sha256=digest.hexdigest(), n=n)


def files_with_runs(services: Services, ids: Collection[str]) -> list[Path]:
    """Return the run files and cached judgements with one of these runs.

    A job that still needs such a file fails with the reason when it is deleted.
    """
    answers = services.settings.cache_dir / JUDGEMENTS
    return files_of_runs([*_folder(services).glob("*.jsonl"), *answers.glob("*/*.json")], ids)


def files_of_runs(paths: Iterable[Path], ids: Collection[str]) -> list[Path]:
    """Return the files that name one of these runs, as JSON."""
    wanted = {json.dumps(run_id).encode() for run_id in ids}
    return [path for path in paths if _holds(path, wanted)]


def _folder(services: Services) -> Path:
    return services.settings.cache_dir / "runs"


def _holds(path: Path, wanted: Collection[bytes]) -> bool:
    try:
        with path.open("rb") as lines:
            return any(run_id in line for line in lines for run_id in wanted)
    except (FileNotFoundError, IsADirectoryError):
        return False


def _prune(services: Services, folder: Path) -> None:
    oldest = (services.clock() - KEPT).timestamp()
    for path in folder.iterdir():
        if path.suffix in {".jsonl", _NEWLY} and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
