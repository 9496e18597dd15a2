"""Sandboxes: open one, add files, run commands.

    with open_sandbox("auto").workspace({"solution.py": "..."}) as workspace:
        ran = workspace.run(["python", "-m", "pytest", "-q"], Limits(wall_s=20))

A backend is used only after a probe: a real command that tried to escape and failed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.records.wording import shown
from quintain.sandbox.backends import Backend, Bubblewrap, Docker, HostFolders, Unshare
from quintain.sandbox.files import MAX_PATH, read_bytes, remove, size_of, write_bytes
from quintain.sandbox.limits import CommandResult, Limits
from quintain.sandbox.process import run_process

IMAGE = "python:3.11-slim"

MAX_FILES, MAX_BYTES = 2_000, 50_000_000
_FIRST_UID, _UIDS = 1_500_000_000, 400_000_000
_count = itertools.count()

_PROBE = """
import os, socket, sys
escapes = []
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2).close()
    escapes.append("reached the machine's network")
except OSError:
    pass
if len(os.listdir("/sys/class/net")) > 1 if os.path.isdir("/sys/class/net") else False:
    escapes.append("sees network devices")
for path in (sys.argv[2] + "/written", "/usr/quintain-probe", "/quintain-probe"):
    try:
        open(path, "w").close()
        escapes.append("wrote " + path)
        break
    except OSError:
        pass
if os.path.exists(sys.argv[2]):
    escapes.append("sees " + sys.argv[2])
if os.geteuid() == 0 and open("/proc/self/status").read().split("CapEff:")[1].split()[0].strip("0"):
    escapes.append("has capabilities")
open("inside", "w").write("; ".join(escapes) or "isolated")
"""


@dataclass(frozen=True)
class Workspace:
    """The files of one task in a sandbox; files written by a command are kept for later commands."""

    backend: Backend
    folders: HostFolders

    @property
    def folder(self) -> Path:
        """The host folder of the files. Commands may have created links in it: never follow them."""
        return self.folders.workspace

    def run(self, command: Sequence[str] | str, limits: Limits = Limits()) -> CommandResult:  # noqa: B008
        """Run a command in the workspace.

        Args:
            command: A program and its arguments, or one line for `sh`.
            limits: Resource limits.

        Raises:
            InvalidInput: The command is empty or malformed.
            Unavailable: The program of the backend cannot be started.
        """
        parts = ["sh", "-c", command] if isinstance(command, str) else list(command)
        if not parts or not all(isinstance(part, str) and "\0" not in part for part in parts) or not parts[-1].strip():
            raise InvalidInput(
                f"expected a command, got {shown(command)}; pass a line of text, or a list of a program and its arguments"
            )
        bytes_before = size_of(self.folder)
        # Otherwise each command could add what it writes before the first check.
        if bytes_before > limits.disk_mb * 1_000_000:
            limits = replace(limits, file_mb=0)
        argv, stdin_text, env = self.backend.isolate(parts, limits, self.folders)
        try:
            return run_process(
                argv,
                limits,
                self.folder,
                env=env,
                kill=lambda: self.backend.kill(self.folders),
                stdin_text=stdin_text,
                bytes_before=bytes_before,
            )
        except OSError as error:
            raise Unavailable(
                f"cannot start the sandbox {self.backend.name} ({error.strerror}); choose another with QUINTAIN_SANDBOX",
                code="no_sandbox",
            ) from None

    def is_full(self, limits: Limits) -> bool:
        """Whether the folder exceeds the disk limit."""
        return size_of(self.folder) > limits.disk_mb * 1_000_000

    def is_broken(self) -> bool:
        """Whether even `true` fails: then the sandbox is at fault and not the command."""
        return self.run(["true"], Limits(wall_s=20)).exit_code != 0

    def read(self, path: str, most: int) -> bytes:
        """Return the first `most` bytes of a file; raises as `files.read_bytes` and `relative_path`."""
        return read_bytes(self.folder, relative_path(path), most)

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        """Write a file; raises as `files.write_bytes` and `relative_path`."""
        write_bytes(self.folder, relative_path(path), data, self.folders.uid, mode)

    def remove(self, path: str) -> None:
        """Remove a file or a link; raises as `files.remove` and `relative_path`."""
        remove(self.folder, relative_path(path))


@dataclass(frozen=True)
class Sandbox:
    """A backend that works on this machine."""

    backend: Backend

    @property
    def name(self) -> str:
        """`bubblewrap`, `unshare` or `docker`."""
        return self.backend.name

    def run(self, command: Sequence[str] | str, files: Mapping[str, str], limits: Limits = Limits()) -> CommandResult:  # noqa: B008
        """Run one command in a temporary workspace; arguments and errors as for `workspace` and `Workspace.run`."""
        with self.workspace(files) as workspace:
            return workspace.run(command, limits)

    @contextmanager
    def workspace(self, files: Mapping[str, str], fill: Callable[[Path], None] | None = None) -> Iterator[Workspace]:
        """Open a workspace for any number of commands; it is removed at the end, or when this process ends.

        Args:
            files: Relative path -> text.
            fill: Writes other files into the folder before these.

        Raises:
            InvalidInput: A path leaves the folder, or the files are too many or too large.
            Unavailable: The files cannot be written.
        """
        checked = {relative_path(path): text for path, text in files.items()}
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in checked.values())
        if len(checked) > MAX_FILES or size > MAX_BYTES:
            raise InvalidInput(
                f"expected at most {MAX_FILES:,} files of {MAX_BYTES:,} bytes in a workspace, got {len(checked):,} of {size:,}; "
                "remove some"
            )
        try:
            top = Path(tempfile.mkdtemp(prefix="sandbox-", dir=temporary_folder()))
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"cannot create a folder for a sandbox ({error}); free disk space") from None
        try:
            uid = _FIRST_UID + (os.getpid() * 1000 + next(_count)) % _UIDS if os.geteuid() == 0 else None
            folders = HostFolders(top / "workspace", top / "root", uid)
            try:
                _fill(folders, checked, fill)
            except OSError as error:
                raise Unavailable(
                    f"cannot write the files below {top} ({error.strerror}); rename them, or free disk space"
                ) from None
            yield Workspace(self.backend, folders)
        finally:
            _remove(top)


def open_sandbox(choice: str = "auto", image: str = IMAGE) -> Sandbox:
    """Open the sandbox of the operator's choice, if its probe shows that it isolates commands.

    Args:
        choice: `auto` (the first that works), `bubblewrap`, `unshare`, `docker` or `off`.
        image: The docker image.

    Raises:
        Refused: The operator has switched sandboxes off.
        InvalidInput: The choice is unknown.
        Unavailable: No backend works; the message gives the reason and the remedy of each.
    """
    if choice == "off":
        raise Refused(
            "expected a sandbox to run commands in, got QUINTAIN_SANDBOX=off; the operator can set it to auto",
            code="no_sandbox",
        )
    backends: tuple[Backend, ...] = (Bubblewrap(), Unshare(), Docker(image))
    if choice != "auto":
        backends = tuple(backend for backend in backends if backend.name == choice)
        if not backends:
            raise InvalidInput(f"expected a sandbox, got {choice!r}; valid: auto, bubblewrap, unshare, docker, off")
    faults = []
    for backend in backends:
        fault = probe(backend)
        if fault is None:
            return Sandbox(backend)
        faults.append(f"{backend.name}: {fault}")
    raise Unavailable(
        f"expected a working sandbox, got none, so commands do not run: {' | '.join(faults)}", code="no_sandbox"
    )


def probe(backend: Backend) -> str | None:
    """Return why a backend does not work on this machine; None if its probe command could work but not escape.

    The probe tries to connect to a port of this machine, to list and write a world-writable folder, to write among the programs,
    and to keep the capabilities of root. It must be able to write in its workspace.
    """
    if missing := backend.missing():
        return missing
    outside = Path(tempfile.mkdtemp(prefix="outside-"))
    try:
        outside.chmod(0o777)
        with socket.create_server(("127.0.0.1", 0)) as listener, Sandbox(backend).workspace({}) as workspace:
            port = str(listener.getsockname()[1])
            ran = workspace.run(["python3", "-I", "-c", _PROBE, port, str(outside)], Limits(wall_s=20))
            written = workspace.folder / "inside"
            result = written.read_text("utf-8")[:300] if written.is_file() and not written.is_symlink() else None
        if result is None:
            why = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or [f"exit code {ran.exit_code}"]
            return f"its probe did not run: {why[0][:200]}"
        if result != "isolated" or any(outside.iterdir()):
            return f"it does not isolate commands: a command {result if result != 'isolated' else 'wrote outside'}"
        return None
    except (OSError, Unavailable) as error:
        return f"its probe could not be started ({error})"
    finally:
        shutil.rmtree(outside, ignore_errors=True)


def relative_path(path: str) -> str:
    """Return the normalized path of a file in a workspace.

    Raises:
        InvalidInput: The path is absolute, leaves the workspace, or is malformed.
    """
    pure = PurePosixPath(path) if isinstance(path, str) else None
    if (
        pure is None
        or pure.is_absolute()
        or ".." in pure.parts
        or not pure.parts
        or "\0" in path
        or len(path) > MAX_PATH
    ):
        raise InvalidInput(
            f"expected a relative path below the workspace, got {shown(path)}; write it as 'src/solution.py'"
        )
    return str(pure)


def _fill(folders: HostFolders, files: Mapping[str, str], fill: Callable[[Path], None] | None) -> None:
    for folder in (folders.root, folders.workspace):
        folder.mkdir()
    if fill is not None:
        fill(folders.workspace)
    for name, text in files.items():
        file = folders.workspace / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8", "replace"))
    if folders.uid is not None:
        for path in (folders.root.parent, folders.workspace, *folders.workspace.rglob("*")):
            os.chown(path, folders.uid, folders.uid, follow_symlinks=False)


def _remove(top: Path) -> None:
    """Delete a folder, even with restrictive modes or with folders too deep for `shutil.rmtree`."""
    try:
        shutil.rmtree(top)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(top)], capture_output=True, check=False)


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
