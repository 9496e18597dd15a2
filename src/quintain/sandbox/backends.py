"""Three isolation backends with the same effect: bubblewrap, Linux namespaces by `unshare`, and docker.

A command gets the host's programs read-only, its workspace at `/workspace`, an empty `/tmp`, and no network. If this process
is root, the command runs as a separate user that owns only the workspace.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from quintain.sandbox.limits import Limits

WORKSPACE = "/workspace"

HOSTNAME = "sandbox"

_INIT = Path(__file__).with_name("namespace_init.py")
_READ_PROGRAM = "import json, sys; exec(json.loads(sys.stdin.readline()))"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
_MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class HostFolders:
    """The host folders of one workspace, and their owner."""

    workspace: Path
    root: Path
    """An empty folder, used as the mount point of the new root."""
    uid: int | None
    """User id of the command if this process is root; None for the user of this process."""


class Isolation(NamedTuple):
    """How to start the isolation program of one command."""

    argv: list[str]
    stdin_text: str = ""
    """Standard input of the program; the command itself gets an empty one."""
    env: dict[str, str] | None = None
    """Environment of the program; None: that of this process."""


class _Namespaces:
    """Isolation by namespaces of the kernel, which kills all of their processes together with process 1."""

    def kill(self, folders: HostFolders) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Bubblewrap(_Namespaces):
    """Isolation by `bwrap`, without root and without a service."""

    name: str = "bubblewrap"
    program: str = "bwrap"

    def missing(self) -> str | None:
        """Return the missing programs; None if all are installed."""
        absent = [name for name in (self.program, "prlimit", "setpriv") if shutil.which(name) is None]
        return f"{', '.join(absent)} not found; install bubblewrap and util-linux" if absent else None

    def isolate(self, command: Sequence[str], limits: Limits, folders: HostFolders) -> Isolation:
        """Return the command line, with the options of `bwrap` in the input, each ended by NUL."""
        user = []
        if folders.uid is not None:
            ids = ["--reuid", str(folders.uid), "--regid", str(folders.uid)]
            user = ["setpriv", *ids, "--clear-groups", "--no-new-privs"]
        # The options are read from a descriptor, because the command can read the command line of its process 1.
        start = ["/bin/sh", "-c", 'exec "$0" --args 3 "$@" 3<&0 </dev/null', _program_path(self.program)]
        options = "".join(f"{option}\0" for option in self._options(limits, folders))
        return Isolation([*start, "--", *user, *_prlimit(limits), *command], options, environment())

    def _options(self, limits: Limits, folders: HostFolders) -> list[str]:
        # Root needs no user namespace. Inside one it could not access the folder of the command's user.
        options = ["--unshare-user"] if folders.uid is None else []
        options += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--hostname", HOSTNAME]
        options += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--clearenv"]
        options += ["--proc", "/proc", "--dev", "/dev"]
        for path in ("/tmp", "/dev/shm"):
            options += ["--perms", "1777", "--size", str(limits.disk_mb * _MEGABYTE), "--tmpfs", path]
        for path in visible_paths():
            for parent in reversed(Path(path).parents[:-1]):  # bubblewrap would create them with mode 0700
                options += ["--perms", "0755", "--dir", str(parent)]
            options += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
        for path in hidden_paths():
            options += ["--perms", "0755", "--size", "4096", "--tmpfs", path, "--remount-ro", path]
        options += ["--bind", str(folders.workspace), WORKSPACE, "--chdir", WORKSPACE, "--remount-ro", "/"]
        for name, value in environment().items():
            options += ["--setenv", name, value]
        options += ["--cap-drop", "ALL"]
        if folders.uid is not None:  # root keeps these two capabilities until it has changed the user
            options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return options


@dataclass(frozen=True)
class Unshare(_Namespaces):
    """Isolation by Linux namespaces, created by `unshare`; `namespace_init.py` builds the root inside."""

    name: str = "unshare"
    program: str = "unshare"

    def missing(self) -> str | None:
        """Return the missing programs; None if all are installed."""
        absent = [name for name in (self.program, "setpriv") if shutil.which(name) is None]
        return f"{', '.join(absent)} not found; install util-linux (Linux only)" if absent else None

    def isolate(self, command: Sequence[str], limits: Limits, folders: HostFolders) -> Isolation:
        """Return the command line, with the init program and its plan in the input.

        Arguments would be visible inside, and they contain host paths.
        """
        user_namespace = [] if folders.uid is not None else ["--user", "--map-root-user"]
        namespaces = ["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL"]
        die_with_parent = [_program_path("setpriv"), "--pdeathsig", "KILL"]  # then unshare kills its child too
        python = [sys.executable, "-I", "-S", "-c", _READ_PROGRAM]
        argv = [*die_with_parent, _program_path(self.program), *user_namespace, *namespaces, *python]
        plan = {
            "root": str(folders.root),
            "workspace": str(folders.workspace),
            "uid": folders.uid,
            "hostname": HOSTNAME,
            "visible": visible_paths(),
            "hidden": hidden_paths(),
            "env": environment(),
            "command": list(command),
            **asdict(limits),
        }
        return Isolation(argv, f"{json.dumps(_INIT.read_text('utf-8'))}\n{json.dumps(plan)}\n", environment())


@dataclass(frozen=True)
class Docker:
    """Isolation by a container without network. The image must be on this machine; it is never pulled."""

    image: str
    name: str = "docker"
    program: str = "docker"

    def missing(self) -> str | None:
        """Return whether the program, its service or the image is missing; None if all are available."""
        if shutil.which(self.program) is None:
            return "docker not found; install it"
        argv = [self.program, "image", "inspect", "--format", "{{.Id}}", self.image]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"docker does not respond ({type(error).__name__}); start its service"
        if done.returncode == 0:
            return None
        message = done.stderr.strip().splitlines()[-1:] or ["docker does not respond"]
        return f"{message[0][:150]}; start its service, and `docker pull {self.image}`"

    def isolate(self, command: Sequence[str], limits: Limits, folders: HostFolders) -> Isolation:
        """Return the command line of the client, which needs our environment to find its service; the container gets another."""
        user = folders.uid if folders.uid is not None else os.getuid()
        limit_options = ["--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"]
        limit_options += ["--pids-limit", str(limits.processes), "--cpus", "1"]
        limit_options += ["--ulimit", f"cpu={limits.cpu_s}", "--ulimit", f"fsize={limits.file_mb * _MEGABYTE}"]
        options = ["--network", "none", "--hostname", HOSTNAME, "--read-only", "--cap-drop", "ALL"]
        options += ["--security-opt", "no-new-privileges"]
        options += ["--tmpfs", f"/tmp:size={limits.disk_mb}m,mode=1777", "--user", f"{user}:{user}", "--pull", "never"]
        options += ["--volume", f"{folders.workspace}:{WORKSPACE}", "--workdir", WORKSPACE]
        for name, value in environment().items():
            options += ["--env", f"{name}={value}"] if name != "PATH" else []
        run = [self.program, "run", "--rm", "--init", "--name", _container(folders), *limit_options, *options]
        # The service outlives this process and would keep the command running.
        return Isolation([*run, self.image, "timeout", "-s", "KILL", f"{limits.wall_s + 2:g}", *command])

    def kill(self, folders: HostFolders) -> None:
        """Remove the container, which is a child of the service and not of the client."""
        argv = [self.program, "rm", "--force", _container(folders)]
        try:
            subprocess.run(argv, capture_output=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            pass


Backend = Bubblewrap | Unshare | Docker
"""An isolation backend; its name is the value of QUINTAIN_SANDBOX that selects it."""


def visible_paths() -> list[str]:
    """Return the host paths visible to commands: programs, libraries and this Python."""
    prefixes = [path for path in (sys.base_prefix, sys.prefix) if not Path(path).is_relative_to("/usr") and path != "/"]
    known = [path for path in (*_SYSTEM, *_ETC, *prefixes) if os.path.lexists(path)]
    return list(dict.fromkeys(known))


def hidden_paths() -> list[str]:
    """Return the paths hidden from commands: this package, which contains the solutions of generated tasks."""
    package = Path(__file__).resolve().parents[1]
    return [str(package)] if any(package.is_relative_to(Path(path).resolve()) for path in visible_paths()) else []


def environment() -> dict[str, str]:
    """Return the complete environment of a command, without variables of this process."""
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


def _program_path(program: str) -> str:
    """Return the path of a program: it starts with the command's environment, whose PATH can differ from ours."""
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


def _container(folders: HostFolders) -> str:
    return f"quintain-{folders.workspace.parent.name}"
