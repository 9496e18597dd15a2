"""A temporary folder that a watching shell removes when this process ends for any reason."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from pathlib import Path

# The inner shell, in a new session, waits until this process closes a pipe. A command that was just killed can still write for
# a moment, hence the retries. The outer shell ends at once, so this process has no child to wait for.
_REMOVE_AT_PARENT_EXIT = """
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
_open_pipes: list[int] = []
"""Write ends of pipes, open until this process ends."""


def temporary_folder() -> Path:
    """Return the temporary folder of this process, created at the first call.

    Raises:
        OSError: The folder cannot be created.
    """
    process = os.getpid()  # a fork gets another folder
    with _lock:
        if process not in _folders or not _folders[process].is_dir():  # a cleaner of old files may have removed it
            folder = Path(tempfile.mkdtemp(prefix="quintain-sandbox-"))
            folder.chmod(0o711)  # the users of commands need to enter it
            read_end, write_end = os.pipe()
            try:
                subprocess.run(
                    ["sh", "-c", _REMOVE_AT_PARENT_EXIT, "sh", str(folder)],
                    stdin=read_end,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                    check=True,
                    timeout=20,
                )
            finally:
                os.close(read_end)
            _open_pipes.append(write_end)
            _folders[process] = folder
        return _folders[process]
