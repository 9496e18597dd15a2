"""Three ways to build the same walls: bubblewrap, plain namespaces by `unshare`, and docker.

Each shows the command the machine's programs read-only, its workspace at `/workspace`, an empty `/tmp`, and no network. Where
this process is root the command runs as a user of its own, who owns nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quintain.sandbox.limits import Limits

WORKSPACE = "/workspace"
"""Where a command finds its files."""

HOSTNAME = "sandbox"
"""What a command takes the machine for."""

_WALLS = Path(__file__).with_name("walls.py")
_READ_AND_RUN = "import json, sys; exec(json.loads(sys.stdin.readline()))"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Place:
    """The folders of one workspace on this machine, and whose they are."""

    workspace: Path
    root: Path
    """An empty folder, over which the new root is mounted."""
    uid: int | None
    """The user that the command gets, where this process is root; None: this process's own."""


class Backend(Protocol):
    """A kind of walls."""

    @property
    def name(self) -> str:
        """As in QUINTAIN_SANDBOX."""

    def missing(self) -> str | None:
        """Return what is missing on this machine; None if a probe is worthwhile."""

    def argv(self, command: Sequence[str], limits: Limits, place: Place) -> list[str]:
        """Return the command line of the isolating program."""

    def stdin_text(self, command: Sequence[str], limits: Limits, place: Place) -> str:
        """Return the standard input of the isolating program; the command itself gets an empty one."""

    def env(self) -> dict[str, str] | None:
        """Return the environment of the isolating program; None to inherit the environment of this process."""

    def kill(self, place: Place) -> None:
        """Kill what survives the end of the process group."""


@dataclass(frozen=True)
class Bubblewrap:
    """`bwrap`, which needs no root and no service."""

    name: str = "bubblewrap"
    program: str = "bwrap"

    def missing(self) -> str | None:
        """The programs that it needs."""
        absent = [name for name in (self.program, "prlimit", "setpriv") if shutil.which(name) is None]
        return f"{', '.join(absent)} not found; install bubblewrap and util-linux" if absent else None

    def argv(self, command: Sequence[str], limits: Limits, place: Place) -> list[str]:
        """As `Backend`."""
        # Root needs no user namespace, and in one it could not reach the folder of the command's user.
        own = ["--unshare-user"] if place.uid is None else []
        walls = [_found(self.program), *own, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        walls += ["--hostname", HOSTNAME]
        walls += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"]
        walls += ["--proc", "/proc", "--dev", "/dev"]
        for path in ("/tmp", "/dev/shm"):
            walls += ["--perms", "1777", "--size", str(limits.disk_mb * _MEGABYTE), "--tmpfs", path]
        for path in shown_paths():
            for parent in reversed(Path(path).parents[:-1]):  # which bubblewrap would make for itself alone
                walls += ["--perms", "0755", "--dir", str(parent)]
            walls += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
        for path in hidden_paths():
            walls += ["--perms", "0755", "--size", "4096", "--tmpfs", path, "--remount-ro", path]
        walls += ["--bind", str(place.workspace), WORKSPACE, "--chdir", WORKSPACE, "--remount-ro", "/"]
        for name, value in environment().items():
            walls += ["--setenv", name, value]
        walls += ["--cap-drop", "ALL"]
        user = []
        if place.uid is not None:  # root itself must change the user, which is the one power that it keeps until then
            walls += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
            user = ["setpriv", "--reuid", str(place.uid), "--regid", str(place.uid), "--clear-groups", "--no-new-privs"]
        return [*walls, "--", *user, *_prlimit(limits), *command]

    def stdin_text(self, command: Sequence[str], limits: Limits, place: Place) -> str:
        """Nothing."""
        return ""

    def env(self) -> dict[str, str] | None:
        """Nothing of ours."""
        return environment()

    def kill(self, place: Place) -> None:
        """Do nothing: the kernel kills all processes of the namespace with its process 1."""


@dataclass(frozen=True)
class Unshare:
    """The namespaces of Linux by `unshare`; `walls.py` builds the root inside."""

    name: str = "unshare"
    program: str = "unshare"

    def missing(self) -> str | None:
        """The programs that it needs."""
        absent = [name for name in (self.program, "setpriv") if shutil.which(name) is None]
        return f"{', '.join(absent)} not found; install util-linux (Linux only)" if absent else None

    def argv(self, command: Sequence[str], limits: Limits, place: Place) -> list[str]:
        """As `Backend`."""
        own = [] if place.uid is not None else ["--user", "--map-root-user"]
        namespaces = ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL"]
        with_us = [
            _found("setpriv"),
            "--pdeathsig",
            "KILL",
        ]  # unshare dies with this process, and its child with unshare
        return [*with_us, _found(self.program), *own, *namespaces, sys.executable, "-I", "-S", "-c", _READ_AND_RUN]

    def stdin_text(self, command: Sequence[str], limits: Limits, place: Place) -> str:
        """The walls and their plan: arguments could be read inside, and name folders of this machine."""
        plan = {
            "root": str(place.root),
            "workspace": str(place.workspace),
            "uid": place.uid,
            "hostname": HOSTNAME,
            "shown": shown_paths(),
            "hidden": hidden_paths(),
            "env": environment(),
            "command": list(command),
            "wall_s": limits.wall_s,
            "cpu_s": limits.cpu_s,
            "memory_mb": limits.memory_mb,
            "processes": limits.processes,
            "file_mb": limits.file_mb,
            "disk_mb": limits.disk_mb,
        }
        return f"{json.dumps(_WALLS.read_text('utf-8'))}\n{json.dumps(plan)}\n"

    def env(self) -> dict[str, str] | None:
        """Nothing of ours."""
        return environment()

    def kill(self, place: Place) -> None:
        """Do nothing: the kernel kills all processes of the namespace with its process 1."""


@dataclass(frozen=True)
class Docker:
    """A container without network; the image must be on this machine, nothing is pulled."""

    image: str
    name: str = "docker"
    program: str = "docker"

    def missing(self) -> str | None:
        """The program, its service and the image."""
        if shutil.which(self.program) is None:
            return "docker not found; install it"
        asked = [self.program, "image", "inspect", "--format", "{{.Id}}", self.image]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"docker does not answer ({type(error).__name__}); start its service"
        if done.returncode == 0:
            return None
        said = done.stderr.strip().splitlines()[-1:] or ["no answer"]
        return f"{said[0][:150]}; start its service, and `docker pull {self.image}`"

    def argv(self, command: Sequence[str], limits: Limits, place: Place) -> list[str]:
        """As `Backend`."""
        user = place.uid if place.uid is not None else os.getuid()
        bounds = ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
        bounds += ["--pids-limit", str(limits.processes), "--cpus", "1"]
        bounds += ["--ulimit", f"cpu={limits.cpu_s}", "--ulimit", f"fsize={limits.file_mb * _MEGABYTE}"]
        walls = [
            "--network",
            "none",
            "--hostname",
            HOSTNAME,
            "--read-only",
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
        ]
        walls += ["--tmpfs", f"/tmp:size={limits.disk_mb}m,mode=1777", "--user", f"{user}:{user}", "--pull", "never"]
        walls += ["--volume", f"{place.workspace}:{WORKSPACE}", "--workdir", WORKSPACE]
        for name, value in environment().items():
            walls += ["--env", f"{name}={value}"] if name != "PATH" else []
        return [
            self.program,
            "run",
            "--rm",
            "--init",
            "--name",
            _container(place),
            *bounds,
            *walls,
            self.image,
            # The service outlives this process, and would let the command run on.
            *("timeout", "-s", "KILL", f"{limits.wall_s + 2:g}"),
            *command,
        ]

    def stdin_text(self, command: Sequence[str], limits: Limits, place: Place) -> str:
        """Nothing."""
        return ""

    def env(self) -> dict[str, str] | None:
        """Ours, for the client must find its service; the container gets none of it."""
        return None

    def kill(self, place: Place) -> None:
        """Containers are children of the service, not of the client."""
        asked = [self.program, "rm", "--force", _container(place)]
        try:
            subprocess.run(asked, capture_output=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            pass


def shown_paths() -> list[str]:
    """Return the visible paths of this machine: programs, libraries and this Python."""
    prefixes = [path for path in (sys.base_prefix, sys.prefix) if not Path(path).is_relative_to("/usr") and path != "/"]
    known = [path for path in (*_SYSTEM, *_SETTINGS, *prefixes) if os.path.lexists(path)]
    return list(dict.fromkeys(known))


def hidden_paths() -> list[str]:
    """Return the hidden paths: this package, which contains the solutions of generated tasks."""
    own = Path(__file__).resolve().parents[1]
    return [str(own)] if any(own.is_relative_to(Path(path).resolve()) for path in shown_paths()) else []


def environment() -> dict[str, str]:
    """Return the whole environment of a command, without variables of this process."""
    programs = dict.fromkeys(
        (str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
    )
    return {
        "PATH": ":".join(programs),
        "HOME": "/tmp",
        "USER": "sandbox",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def _found(program: str) -> str:
    """Its path: it is started with the environment of the command, which need not hold our PATH."""
    return shutil.which(program) or program


def _prlimit(limits: Limits) -> list[str]:
    return [
        "prlimit",
        f"--cpu={limits.cpu_s}",
        f"--as={limits.memory_mb * _MEGABYTE}",
        f"--nproc={limits.processes}",
        f"--fsize={limits.file_mb * _MEGABYTE}",
        "--core=0",
    ]


def _container(place: Place) -> str:
    return f"quintain-{place.workspace.parent.name}"
