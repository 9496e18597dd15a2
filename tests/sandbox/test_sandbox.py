"""Isolated commands: no escape, limits, cleanup of processes and folders, signed test reports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from quintain.errors import InvalidInput, Refused, Unavailable
from quintain.sandbox import backends, files
from quintain.sandbox import sandbox as sandbox_module
from quintain.sandbox.backends import Backend, Bubblewrap, Docker, HostFolders, Isolation, Unshare
from quintain.sandbox.files import size_of
from quintain.sandbox.limits import Limits
from quintain.sandbox.process import BoundedText, run_process
from quintain.sandbox.sandbox import IMAGE, Sandbox, open_sandbox, probe, relative_path
from quintain.sandbox.verdicts import read_counts, signed_command, verdict


@dataclass(frozen=True)
class Bare:
    """No isolation, for the checks of limits and for a probe that must fail."""

    name: str = "bare"

    def missing(self) -> str | None:
        return None

    def isolate(self, command: Sequence[str], limits: Limits, folders: HostFolders) -> Isolation:
        return Isolation(["sh", "-c", 'cd "$0" && exec "$@"', str(folders.workspace), *command])

    def kill(self, folders: HostFolders) -> None:
        pass


@pytest.fixture(params=[Bubblewrap(), Unshare(), Docker(IMAGE)], ids=lambda backend: backend.name)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    backend: Backend = request.param
    if fault := probe(backend):
        pytest.skip(f"{backend.name} does not work on this machine: {fault}")
    return Sandbox(backend)


def alive(marker: str) -> list[int]:
    return [p.pid for p in psutil.process_iter(["cmdline"]) if marker in " ".join(p.info["cmdline"] or ())]


def test_a_command_sees_its_files_and_what_it_writes_stays_for_the_next(sandbox: Sandbox) -> None:
    with sandbox.workspace({"src/a.txt": "hello"}) as workspace:
        first = workspace.run("cat src/a.txt && echo more > b.txt; exit 3")
        assert (first.exit_code, first.stdout, first.stopped) == (3, "hello", None)
        assert workspace.run(["cat", "b.txt"]).stdout == "more\n"
        folder = workspace.folder
    assert not folder.parent.exists()


ESCAPES = {
    "connect": "import socket; socket.create_connection(('1.1.1.1', 53), 2)",
    "loopback of the machine": "import socket; socket.create_connection(('127.0.0.1', <PORT>), 2)",
    "write among the programs": "open('/usr/bin/owned', 'w')",
    "write to the root": "open('/owned', 'w')",
    "read a file outside": "open('<SECRET>').read()",
    "write a file outside": "open('<SECRET>', 'a').write('x')",
    "see this home": "import os; os.listdir('<HOME>')",
    "signal a process outside": "import os; os.kill(<PID>, 0)",
    "read our environment": "import os; os.environ['QUINTAIN_CANARY']",
    "mount": "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); assert c.mount(b't', b'/tmp', b'tmpfs', 0, b'') == 0",
    "make the programs writable": "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/usr', None, 32 | 4096, None) == 0",
    "become root": "import os; os.setuid(12345); os.setuid(0)",
    "change the hostname": "import socket; socket.sethostname('owned')",
    "make a device": "import os, stat; os.mknod('/tmp/sda', stat.S_IFBLK | 0o600, os.makedev(8, 0))",
    "trace process 1": "import ctypes; assert ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
    "leave by a link": "import os; os.symlink('<SECRET>', 'link'); open('link').read()",
}


TRIES = """
import os, sys
for name, program in ESCAPES.items():
    child = os.fork()
    if child == 0:
        try:
            exec(program)
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        print(name)
"""
"""Prints the names of the escapes that succeed."""


def test_a_command_cannot_escape(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    record_property("cases", len(ESCAPES))
    monkeypatch.setenv("QUINTAIN_CANARY", "seen")
    secret, home = tmp_path / "secret", str(Path.home())
    secret.write_text("canary")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        values = {"SECRET": str(secret), "PID": str(os.getpid()), "PORT": str(listener.getsockname()[1]), "HOME": home}
        escapes = {"what is allowed": "pass", **ESCAPES}
        for name, value in values.items():
            escapes = {escape: program.replace(f"<{name}>", value) for escape, program in escapes.items()}
        program = f"ESCAPES = {escapes!r}\n{TRIES}"
        ran = sandbox.run(["python3", "-I", "-c", program], {}, Limits(wall_s=100))
    assert ran.exit_code == 0, ran
    assert secret.read_text() == "canary"
    escaped = set(ran.stdout.splitlines())
    if "see this home" in escaped:  # the folder may hold this Python, and then only that is shown
        listing = f"import os; print([n for n in os.listdir({home!r})])"
        shown = sandbox.run(["python3", "-I", "-c", listing], {}).stdout
        assert set(eval(shown)) <= set(Path(sys.base_prefix).relative_to(home).parts)
        escaped.remove("see this home")
    assert escaped == {"what is allowed"}


def test_commands_that_exceed_a_limit_fail(sandbox: Sandbox) -> None:
    def code(program: str, **limits: float) -> int | None:
        return sandbox.run(["python3", "-I", "-c", program], {}, Limits(**limits)).exit_code  # type: ignore[arg-type]

    assert code("x = bytearray(10**9)", memory_mb=200) != 0
    assert code("while True: pass", cpu_s=1, wall_s=100) in (137, 152)
    assert code("open('big', 'wb').write(bytes(30_000_000))", file_mb=5) != 0
    many = "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        time.sleep(30)"
    assert code(many, processes=20, wall_s=100) not in (0, None)


def test_a_command_that_does_not_end_is_killed_with_all_of_its_processes(sandbox: Sandbox) -> None:
    marker = f"314{os.getpid()}"
    ran = sandbox.run(f"setsid sleep {marker} & nohup sleep {marker} & sleep {marker}", {}, Limits(wall_s=0.5))
    assert (ran.timed_out, ran.exit_code) == (True, None)
    ended = sandbox.run(f"(setsid sleep {marker} >/dev/null 2>&1 &) ; echo done", {}, Limits(wall_s=100))
    assert (ended.exit_code, ended.stdout) == (0, "done\n")
    deadline = time.monotonic() + 60
    while alive(marker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive(marker) == []


def test_a_backend_that_does_not_isolate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without isolation the probe's command reaches the port and writes the folder, and its backend is refused."""
    fault = probe(Bare())
    assert "does not isolate commands" in fault
    assert "reached the machine's network" in fault
    assert "wrote " in fault
    monkeypatch.setattr(sandbox_module, "Bubblewrap", Bare)
    monkeypatch.setattr(sandbox_module, "Unshare", Bare)
    monkeypatch.setattr(sandbox_module, "Docker", lambda image: Bare())
    with pytest.raises(
        Unavailable, match=r"\[no_sandbox\] expected a working sandbox, got none.*bare: it does not isolate commands"
    ):
        open_sandbox("auto")


def test_the_operator_can_switch_sandboxes_off_and_choose_one() -> None:
    with pytest.raises(Refused, match="QUINTAIN_SANDBOX=off"):
        open_sandbox("off")
    with pytest.raises(InvalidInput, match="valid: auto, bubblewrap, unshare, docker, off"):
        open_sandbox("chroot")
    absent = Bubblewrap(program="no-such-bwrap")
    assert probe(absent) == "no-such-bwrap not found; install bubblewrap and util-linux"
    assert "docker" in (Docker("no-such-image:none", program="no-such-docker").missing() or "")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "", "a\0b", "x" * 2000, 3])
def test_a_path_that_leaves_the_workspace_is_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="expected a relative path below the workspace"):
        relative_path(path)
    assert relative_path("a/./b.py") == "a/b.py"


def test_invalid_limits_commands_and_too_many_files_are_refused() -> None:
    for limits in (
        {"wall_s": 0},
        {"wall_s": float("inf")},
        {"memory_mb": -1},
        {"processes": True},
        {"output_chars": 10**9},
    ):
        with pytest.raises(InvalidInput, match=next(iter(limits))):
            Limits(**limits)
    bare = Sandbox(Bare())
    for command in ([], "", "  ", ["a\0"]):
        with pytest.raises(InvalidInput, match="command"):
            bare.run(command, {})
    with pytest.raises(InvalidInput, match="at most 2,000 files"):
        bare.run("true", {f"f{n}": "" for n in range(2001)})


def test_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    text = BoundedText(10)
    for part in (b"abc", b"defgh", b"ijkl", b"mnopqrstuvwxyz"):
        text.add(part)
    assert text.text() == "abcde\n[... 16 bytes left out ...]\nvwxyz"
    assert text.dropped == 16
    bare = Sandbox(Bare())
    ran = bare.run(["python3", "-c", "print('a' * 100_000 + 'end')"], {}, Limits(output_chars=200))
    assert ran.shortened
    assert len(ran.stdout) < 300
    assert ran.stdout.endswith("end\n")


def test_time_and_disk_limits_work_without_isolation(tmp_path: Path) -> None:
    marker = f"271{os.getpid()}"
    argv = ["sh", "-c", f"sleep {marker} & sleep {marker}"]
    ran = run_process(argv, Limits(wall_s=0.3), tmp_path, env=None, kill=lambda: None)
    assert (ran.stopped, ran.exit_code) == ("wall_s", None)
    assert alive(f"sleep {marker}") == []
    filling = f"head -c 4000000 /dev/zero > {tmp_path}/big; sleep {marker}"
    full = run_process(["sh", "-c", filling], Limits(disk_mb=2, wall_s=100), tmp_path, env=None, kill=lambda: None)
    assert full.stopped == "disk_mb"
    assert size_of(tmp_path) >= 4_000_000
    killed = run_process(
        ["sh", "-c", f"kill -{signal.SIGKILL.value} $$"], Limits(), tmp_path, env=None, kill=lambda: None
    )
    assert killed.exit_code == 137


def test_a_workspace_with_restrictive_modes_is_removed() -> None:
    with Sandbox(Bare()).workspace({"a/b": "x"}) as workspace:
        assert workspace.run("mkdir -p d/e; touch d/e/f; chmod 000 d/e d; ln -s / out").exit_code == 0
        top = workspace.folder.parent
    assert not top.exists()


def test_nothing_is_left_when_our_process_is_killed(sandbox: Sandbox) -> None:
    """Neither the command nor the folders, also where they are closed to their owner."""
    if sandbox.name == "docker":
        pytest.skip("containers are children of docker's service")
    marker = f"161{os.getpid()}"
    program = (
        "from quintain.sandbox.limits import Limits; from quintain.sandbox.sandbox import open_sandbox\n"
        "from quintain.sandbox.sandbox import temporary_folder; print(temporary_folder(), flush=True)\n"
        f"open_sandbox({sandbox.name!r}).run('mkdir -m 0 closed; sleep {marker}', {{}}, Limits(wall_s=600))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as ours:
        folder = Path(ours.stdout.readline().strip())
        deadline = time.monotonic() + 60
        # The probe's workspace goes while they are listed, which `walk` ignores.
        while not any("closed" in names for _, names, _ in os.walk(folder)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert folder.name.startswith("quintain-sandbox-")
        assert len(list(folder.iterdir())) == 1
        ours.kill()
    while (alive(f"sleep {marker}") or folder.exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (alive(f"sleep {marker}"), folder.exists()) == ([], False)


def test_a_command_cannot_read_the_solutions_in_this_package(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    if sandbox.name == "docker":
        pytest.skip("an image holds none of this installation")
    inside = Path(pytest.__file__).parent  # installed where commands see it, as this package is for its users
    monkeypatch.setattr(backends, "hidden_paths", lambda: [str(inside)])
    ran = sandbox.run(f"ls -A {inside} && touch {inside}/x", {})
    assert (ran.stdout, ran.exit_code != 0) == ("", True)
    monkeypatch.undo()
    own = Path(backends.__file__).resolve().parents[1]
    assert backends.hidden_paths() == ([str(own)] if str(own).startswith(tuple(backends.visible_paths())) else [])


def test_files_are_read_and_written_from_outside_without_following_links(tmp_path: Path) -> None:
    folder, outside = tmp_path / "workspace", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("canary")
    files.write_bytes(folder, "a/b/c.txt", b"hello", None, 0o755)
    files.write_bytes(folder, "a/b/c.txt", b"hey", None)
    assert files.read_bytes(folder, "a/b/c.txt", 2) == b"he"
    assert (folder / "a/b/c.txt").stat().st_mode & 0o777 == 0o755
    (folder / "link").symlink_to(outside / "secret")
    (folder / "up").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    for path in ("link", "up/secret", "pipe", "a", "a/b/c.txt/d"):
        with pytest.raises(OSError):
            files.read_bytes(folder, path, 10)
        with pytest.raises(OSError):
            files.write_bytes(folder, path, b"x", None)
    with pytest.raises(OSError):
        files.write_bytes(folder, "up/new", b"x", None)
    assert [p.name for p in outside.iterdir()] == ["secret"]
    assert (outside / "secret").read_text() == "canary"
    listed = {(entry.path, entry.kind) for entry in files.walk(folder)}
    assert listed == {
        *{("a", "folder"), ("a/b", "folder"), ("a/b/c.txt", "file")},
        *{("link", "link"), ("up", "link"), ("pipe", "other")},
    }
    assert files.read_link(folder, "link") == str(outside / "secret")
    assert list(files.walk(folder, below="up")) == []
    files.remove(folder, "a/b/c.txt")
    files.remove(folder, "a/b/c.txt")
    assert not (folder / "a").exists()
    files.write_link(folder, "n/l", "anywhere", None)
    assert os.readlink(folder / "n/l") == "anywhere"


def test_a_signed_report_lists_which_named_tests_passed() -> None:
    text = (
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): assert False\n"
    )
    wanted = ["test_a (m.T)", "m.T.test_b", "m.T.test_c"]
    report = signed_command("python3 -m unittest -q m", {"m.py": text}, "secret", wanted)
    ran = Sandbox(Bare()).run(list(report.command), {"m.py": text, **report.files})
    assert read_counts(report, ran.stderr) == (2, 1, 1, "100")
    found = verdict("python3 -m unittest -q m", report, ran, Limits())
    assert (found.passed, found.n_passed, found.n_tests) == (False, 1, 3)
