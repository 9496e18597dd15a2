"""A folder for temporary files that goes with this process, however it ends."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from pathlib import Path

# A shell of its own session waits for the end of a pipe that this process holds open. A command that was just killed may still
# be writing for a moment, so that it tries again. The shell in front ends at once: nothing of ours has to be waited for.
_WAIT_AND_REMOVE = """
exec 3<&0
(cat <&3 >/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf "$1" 2>/dev/null && exit
    chmod -R u+rwx "$1" 2>/dev/null
    sleep 0.3
done) &
"""
_lock = threading.Lock()
_folders: dict[int, Path] = {}
_lifelines: list[int] = []
"""Ends of pipes that are open as long as this process lives."""


def temporary_folder() -> Path:
    """The folder of this process; made at the first call.

    Raises:
        OSError: it cannot be made.
    """
    process = os.getpid()  # a fork gets a folder of its own
    with _lock:
        if process not in _folders or not _folders[process].is_dir():  # a cleaner of old files may have been there
            folder = Path(tempfile.mkdtemp(prefix="quintain-sandbox-"))
            folder.chmod(0o711)  # users of sandboxes pass through
            reading, writing = os.pipe()
            try:
                subprocess.run(
                    ["sh", "-c", _WAIT_AND_REMOVE, "sh", str(folder)],
                    stdin=reading,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                    check=True,
                    timeout=20,
                )
            finally:
                os.close(reading)
            _lifelines.append(writing)
            _folders[process] = folder
        return _folders[process]
