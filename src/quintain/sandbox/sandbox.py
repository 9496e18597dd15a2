"""Sandboxes: open one, give it files, run commands on them.

    with open_sandbox("auto").workspace({"solution.py": "..."}) as workspace:
        ran = workspace.run(["python", "-m", "pytest", "-q"], Limits(wall_s=20))

A backend is only used after a probe in which a real command tried to get out and could not.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.records.record import shown
from quintain.sandbox.backends import Backend, Bubblewrap, Docker, Place, Unshare
from quintain.sandbox.files import MAX_PATH, read_bytes, remove, size_of, write_bytes
from quintain.sandbox.lifeline import temporary_folder
from quintain.sandbox.limits import CommandResult, Limits
from quintain.sandbox.process import run_process

IMAGE = "python:3.11-slim"
"""The image that docker runs commands in."""

MAX_FILES, MAX_BYTES = 2_000, 50_000_000
_FIRST_UID, _UIDS = 1_500_000_000, 400_000_000
_count = itertools.count()

_PROBE = """
import os, socket, sys
said = []
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2).close()
    said.append("reached the machine's network")
except OSError:
    pass
if len(os.listdir("/sys/class/net")) > 1 if os.path.isdir("/sys/class/net") else False:
    said.append("sees network devices")
for path in (sys.argv[2] + "/written", "/usr/quintain-probe", "/quintain-probe"):
    try:
        open(path, "w").close()
        said.append("wrote " + path)
        break
    except OSError:
        pass
if os.path.exists(sys.argv[2]):
    said.append("sees " + sys.argv[2])
if os.geteuid() == 0 and open("/proc/self/status").read().split("CapEff:")[1].split()[0].strip("0"):
    said.append("has capabilities")
open("inside", "w").write("; ".join(said) or "held")
"""


@dataclass(frozen=True)
class Workspace:
    """The files of one task in a sandbox; what a command writes is kept for the next one until the workspace is closed."""

    backend: Backend
    place: Place

    @property
    def folder(self) -> Path:
        """Where the files lie on this machine. Commands may have put links there: never follow them."""
        return self.place.workspace

    def run(self, command: Sequence[str] | str, limits: Limits = Limits()) -> CommandResult:  # noqa: B008
        """Run a command in the folder of the files.

        Args:
            command: A program and its arguments, or one line for `sh`.
            limits: What it may use.

        Raises:
            InvalidInput: no command.
            Unavailable: the backend's program cannot be started any more.
        """
        parts = ["sh", "-c", command] if isinstance(command, str) else list(command)
        if not parts or not all(isinstance(part, str) and "\0" not in part for part in parts) or not parts[-1].strip():
            raise InvalidInput(
                f"the command is {shown(command)}; it must be a line of text, or a list of a program and its arguments"
            )
        held = size_of(self.folder)
        if held > limits.disk_mb * 1_000_000:  # or each command could add what it writes before the first look at it
            limits = replace(limits, file_mb=0)
        argv, stdin_text = (
            self.backend.argv(parts, limits, self.place),
            self.backend.stdin_text(parts, limits, self.place),
        )
        try:
            return run_process(
                argv,
                limits,
                self.folder,
                env=self.backend.env(),
                kill=lambda: self.backend.kill(self.place),
                stdin_text=stdin_text,
                held=held,
            )
        except OSError as error:
            raise Unavailable(
                f"the sandbox {self.backend.name} cannot be started ({error.strerror}); see QUINTAIN_SANDBOX",
                code="no_sandbox",
            ) from None

    def is_full(self, limits: Limits) -> bool:
        """Whether the folder exceeds the disk limit."""
        return size_of(self.folder) > limits.disk_mb * 1_000_000

    def is_broken(self) -> bool:
        """Whether even `true` fails, so that a failure is the sandbox's and not the command's."""
        return self.run(["true"], Limits(wall_s=20)).exit_code != 0

    def read(self, path: str, most: int) -> bytes:
        """The first bytes of a file; errors as of `files.read_bytes` and `relative_path`."""
        return read_bytes(self.folder, relative_path(path), most)

    def write(self, path: str, data: bytes, mode: int | None = None) -> None:
        """Write a file for the commands to find; errors as of `files.write_bytes` and `relative_path`."""
        write_bytes(self.folder, relative_path(path), data, self.place.uid, mode)

    def remove(self, path: str) -> None:
        """Remove a file or a link; errors as of `files.remove` and `relative_path`."""
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
        """Run one command on a copy of some files and forget them; arguments and errors as of `workspace` and `Workspace.run`."""
        with self.workspace(files) as workspace:
            return workspace.run(command, limits)

    @contextmanager
    def workspace(self, files: Mapping[str, str], fill: Callable[[Path], None] | None = None) -> Iterator[Workspace]:
        """A folder with these files, for any number of commands; it is removed at the end, or when this process ends.

        Args:
            files: Relative path -> text.
            fill: Puts other files into the folder before these.

        Raises:
            InvalidInput: a path that leaves the folder, or too many or too large files.
            Unavailable: the disk does not take them.
        """
        checked = {relative_path(path): text for path, text in files.items()}
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in checked.values())
        if len(checked) > MAX_FILES or size > MAX_BYTES:
            raise InvalidInput(
                f"{len(checked):,} files of {size:,} bytes; a workspace takes {MAX_FILES:,} of {MAX_BYTES:,}"
            )
        try:
            top = Path(tempfile.mkdtemp(prefix="sandbox-", dir=temporary_folder()))
        except (OSError, subprocess.SubprocessError) as error:
            raise Unavailable(f"no folder can be made for a sandbox ({error}); free disk space") from None
        try:
            uid = _FIRST_UID + (os.getpid() * 1000 + next(_count)) % _UIDS if os.geteuid() == 0 else None
            place = Place(top / "workspace", top / "root", uid)
            try:
                _fill(place, checked, fill)
            except OSError as error:
                raise Unavailable(
                    f"the files cannot be written below {top} ({error.strerror}); rename them, or free disk space"
                ) from None
            yield Workspace(self.backend, place)
        finally:
            _remove(top)


def open_sandbox(choice: str = "auto", image: str = IMAGE) -> Sandbox:
    """The sandbox of the operator's choice, if its walls hold here.

    Args:
        choice: `auto` (the first that works), `bubblewrap`, `unshare`, `docker` or `off`.
        image: Of docker.

    Raises:
        Refused: the operator has switched sandboxes off.
        Unavailable: no backend works; with the reason of each, and the remedy.
    """
    if choice == "off":
        raise Refused(
            "commands are not run: QUINTAIN_SANDBOX is off; the operator can set it to auto", code="no_sandbox"
        )
    backends: tuple[Backend, ...] = (Bubblewrap(), Unshare(), Docker(image))
    if choice != "auto":
        backends = tuple(backend for backend in backends if backend.name == choice)
        if not backends:
            raise InvalidInput(f"no sandbox is called {choice!r}; valid: auto, bubblewrap, unshare, docker, off")
    faults = []
    for backend in backends:
        fault = probe(backend)
        if fault is None:
            return Sandbox(backend)
        faults.append(f"{backend.name}: {fault}")
    raise Unavailable(f"no sandbox works here, so no command is run ({' | '.join(faults)})", code="no_sandbox")


def probe(backend: Backend) -> str | None:
    """Return why a backend does not isolate commands here; None if a probe command tried to escape, failed, and could work.

    It tries to reach a port that listens on this machine, to see and to write a folder that anyone may write, to write among
    the programs, and to keep the powers of root; and it must be able to write in its workspace.
    """
    if missing := backend.missing():
        return missing
    outside = Path(tempfile.mkdtemp(prefix="outside-"))
    try:
        outside.chmod(0o777)
        with socket.create_server(("127.0.0.1", 0)) as listener, Sandbox(backend).workspace({}) as workspace:
            port = str(listener.getsockname()[1])
            ran = workspace.run(["python3", "-I", "-c", _PROBE, port, str(outside)], Limits(wall_s=20))
            seen = workspace.folder / "inside"
            said = seen.read_text("utf-8")[:300] if seen.is_file() and not seen.is_symlink() else None
        if said is None:
            why = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or [f"exit code {ran.exit_code}"]
            return f"its probe did not run: {why[0][:200]}"
        if said != "held" or any(outside.iterdir()):
            return f"it does not isolate commands: a command {said if said != 'held' else 'wrote outside'}"
        return None
    except (OSError, Unavailable) as error:
        return f"its probe could not be made ({error})"
    finally:
        shutil.rmtree(outside, ignore_errors=True)


def relative_path(path: str) -> str:
    """The path of a file in a workspace, normalised.

    Raises:
        InvalidInput: it is absolute, leaves the workspace, or is no path.
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
        raise InvalidInput(f"{shown(path)} is no path of a file below the workspace; valid: such as 'src/solution.py'")
    return str(pure)


def _fill(place: Place, files: Mapping[str, str], fill: Callable[[Path], None] | None) -> None:
    for folder in (place.root, place.workspace):
        folder.mkdir()
    if fill is not None:
        fill(place.workspace)
    for name, text in files.items():
        file = place.workspace / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8", "replace"))
    if place.uid is not None:
        for path in (place.root.parent, place.workspace, *place.workspace.rglob("*")):
            os.chown(path, place.uid, place.uid, follow_symlinks=False)


def _remove(top: Path) -> None:
    """Delete a folder whatever a command did in it: modes that forbid it, or folders too deep for Python's own way."""
    try:
        shutil.rmtree(top)
    except (OSError, RecursionError):
        for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            subprocess.run([*command, "--", str(top)], capture_output=True, check=False)
