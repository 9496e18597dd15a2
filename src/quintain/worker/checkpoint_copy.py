"""`python -m quintain.worker.checkpoint_copy SNAPSHOT URL NAME KEEP`: upload one copy of a training's checkpoints.

A process of its own with low priority: a thread of the worker would take the interpreter's lock between its small
operations, and slow down the training. The snapshot is removed at the end. Standard output receives why the copy failed, if it did.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from quintain.artifacts.transfers import delete, names_below, upload
from quintain.errors import Conflict, QuintainError

STEP = "step-"
"""Beginning of the name of a checkpoint, and of its copy."""


def copy_checkpoint(snapshot: Path, url: str, name: str, keep: int) -> None:
    """Upload a snapshot as `URL/NAME`, and delete the oldest copies beyond `keep`.

    Raises:
        Refused, Unavailable: As `transfers.upload`.
    """
    try:
        upload(snapshot, f"{url}/{name}")
    except Conflict:  # another attempt's copy of the step, which may be incomplete
        delete(f"{url}/{name}")
        upload(snapshot, f"{url}/{name}")
    copies = sorted((known for known in names_below(url) if known.startswith(STEP) and known <= name), reverse=True)
    for old in copies[keep:]:
        delete(f"{url}/{old}")


def main(arguments: list[str]) -> int:
    """Copy, and remove the snapshot."""
    snapshot, url, name, keep = Path(arguments[0]), arguments[1], arguments[2], int(arguments[3])
    os.nice(10)
    try:
        copy_checkpoint(snapshot, url, name, keep)
    except (QuintainError, OSError) as error:
        sys.stdout.write(f"{name} could not be copied: {error}")
        return 1
    finally:
        shutil.rmtree(snapshot, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
