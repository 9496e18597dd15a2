"""Process 1 of new namespaces: build a root with only the programs of the host, then run one command in it.

A Python under `unshare` reads this file from standard input; the next line is the plan. Standard library only, Linux only. When
process 1 ends, the kernel kills all other processes of the namespace. Mount flags and call numbers come from linux/mount.h,
linux/prctl.h and the shared syscall table.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

TYPE_CHECKING = False  # importing typing and pathlib would take a fifth of the start-up time
if TYPE_CHECKING:
    from typing import Any

_BIND, _REC, _PRIVATE, _NOSUID, _NODEV, _RDONLY = 4096, 16384, 1 << 18, 2, 4, 1
_DETACH = 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_PDEATHSIG, _NO_NEW_PRIVS, _CAPBSET_DROP, _SET_SECUREBITS, _CAP_AMBIENT, _AMBIENT_CLEAR = 1, 38, 24, 28, 47, 4
_NO_ROOT_LOCKED = 0b1111_1111 & ~0b11_0000
"""Securebits: user 0 gets no capabilities, and this setting is locked."""
_CAPSET_VERSION = 0x20080522
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Isolate this process, run the command and return its exit status."""
    plan = json.loads(sys.stdin.readline())
    _check(_LIBC.sethostname(plan["hostname"].encode(), len(plan["hostname"])), "hostname")
    _build_root(plan)
    _drop_privileges(plan["uid"])
    return _run(plan)


def _build_root(plan: dict[str, Any]) -> None:
    root = plan["root"]
    _mount("none", "/", None, _REC | _PRIVATE)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=16m,nr_inodes=4096,mode=755")
    for name in ("proc", "dev", "tmp", "dev/shm", "workspace"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    _mount("proc", f"{root}/proc", "proc", _NOSUID | _NODEV)
    for name in ("tmp", "dev/shm"):
        _mount("tmpfs", f"{root}/{name}", "tmpfs", _NOSUID | _NODEV, f"size={plan['disk_mb']}m,mode=1777")
    for device in ("null", "zero", "full", "random", "urandom"):
        _touch(f"{root}/dev/{device}")
        _mount(f"/dev/{device}", f"{root}/dev/{device}", None, _BIND)
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{root}/dev/{name}")
    _mount(plan["workspace"], f"{root}/workspace", None, _BIND)
    _set_attributes(f"{root}/workspace", _ATTR_NOSUID | _ATTR_NODEV)
    for path in plan["visible"]:  # after /tmp, which may contain a virtual environment
        _bind_read_only(path, root)
    for path in plan["hidden"]:
        _mount("tmpfs", root + path, "tmpfs", _NOSUID | _NODEV | _RDONLY, "size=4k,mode=755")
    os.chdir(root)
    _check(_LIBC.pivot_root(b".", b"."), "pivot_root")
    _check(_LIBC.umount2(b".", _DETACH), "umount of the machine's root")
    os.chdir("/")
    _set_attributes("/", _ATTR_RDONLY, below=False)
    if plan["uid"] is None:  # in our own user namespace, forbid nested ones
        try:
            with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as setting:
                setting.write("0")
        except OSError:
            pass
    os.chdir("/workspace")


def _bind_read_only(path: str, root: str) -> None:
    """Mount a path read-only at the same place in the new root; a link stays a link."""
    inside = root + path
    os.makedirs(os.path.dirname(inside), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), inside)
        return
    if os.path.isdir(path):
        os.makedirs(inside, exist_ok=True)
    else:
        _touch(inside)
    _mount(path, inside, None, _BIND | _REC)
    _set_attributes(inside, _ATTR_RDONLY | _ATTR_NOSUID)


def _touch(path: str) -> None:
    with open(path, "ab"):
        pass


def _drop_privileges(uid: int | None) -> None:
    """Drop all capabilities for good, and change the user if this process is root."""
    for capability in range(64):
        if _LIBC.prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    else:
        _check(_LIBC.prctl(_SET_SECUREBITS, _NO_ROOT_LOCKED, 0, 0, 0), "securebits")
        _LIBC.prctl(_CAP_AMBIENT, _AMBIENT_CLEAR, 0, 0, 0)
        header = (ctypes.c_uint32 * 2)(_CAPSET_VERSION, 0)
        _check(_LIBC.capset(header, (ctypes.c_uint32 * 6)()), "capset")
    _check(_LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _run(plan: dict[str, Any]) -> int:
    """Run the command as a child, so that process 1 ends the namespace when the command ends or its time is over.

    A change of the user has cleared the signal that `unshare` asked for, so the namespace would outlive it: prctl(2).
    """
    _check(_LIBC.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent-death signal")
    child = os.fork()
    if child == 0:
        _exec_command(plan)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(137))  # in case the parent that enforces the time has ended
    signal.setitimer(signal.ITIMER_REAL, plan["wall_s"] + 2)
    while True:
        ended, status = os.wait()
        if ended == child:
            return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _exec_command(plan: dict[str, Any]) -> None:
    megabyte = 1024 * 1024
    for limit, value in (
        (resource.RLIMIT_CPU, plan["cpu_s"]),
        (resource.RLIMIT_AS, plan["memory_mb"] * megabyte),
        (resource.RLIMIT_NPROC, plan["processes"]),
        (resource.RLIMIT_FSIZE, plan["file_mb"] * megabyte),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    try:
        os.execvpe(plan["command"][0], plan["command"], plan["env"])
    except OSError as error:
        sys.stderr.write(f"{plan['command'][0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    result = _LIBC.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, data.encode())
    _check(result, f"mount of {source} at {target}")


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _set_attributes(path: str, attributes: int, *, below: bool = True) -> None:
    """Add flags to a mount, by default to all mounts below it too."""
    request = _Attributes(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if below else 0
    size = ctypes.sizeof(request)
    result = _LIBC.syscall(_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, ctypes.byref(request), size)
    _check(result, f"mount flags of {path}")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


if __name__ == "__main__":
    try:
        status = main()
    except OSError as error:
        sys.stderr.write(f"sandbox: {error.strerror}\n")
        status = 125
    sys.stdout.flush()
    os._exit(status)
