"""Run a process with bounded output and time, and kill its whole group at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from quintain.sandbox.files import size_of
from quintain.sandbox.limits import CommandResult, Limits

_LOOK_S = 0.25
_READ = 65_536


class BoundedText:
    """The beginning and the end of a stream, whatever its length."""

    def __init__(self, limit: int) -> None:
        """Take the number of characters to keep."""
        self._head_room, self._tail_room = limit // 2, limit - limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.dropped = 0

    def add(self, data: bytes) -> None:
        """Take the next bytes."""
        room = self._head_room - len(self._head)
        self._head += data[:room]
        if rest := data[room:] if room > 0 else data:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail_size > self._tail_room:
            over = self._tail_size - self._tail_room
            first = self._tail.popleft()
            if len(first) > over:
                self._tail.appendleft(first[over:])
            lost = min(over, len(first))
            self._tail_size -= lost
            self.dropped += lost

    def text(self) -> str:
        """Return the kept text, with a note on the number of omitted characters."""
        gap = f"\n[... {self.dropped:,} bytes left out ...]\n".encode() if self.dropped else b""
        return (
            (bytes(self._head) + gap + b"".join(self._tail)).decode("utf-8", errors="replace").replace("\0", "\ufffd")
        )


def run_process(
    argv: Sequence[str],
    limits: Limits,
    folder: Path,
    *,
    env: Mapping[str, str] | None,
    kill: Callable[[], None],
    stdin_text: str = "",
    held: int = 0,
) -> CommandResult:
    """Run a program until it ends or reaches a limit.

    Args:
        argv: The program and its arguments, found without a shell.
        limits: `wall_s`, `disk_mb` and `output_chars` are held here.
        folder: The workspace, whose size is watched.
        env: Its environment; None: that of this process.
        kill: Called before the group is killed, for what lives elsewhere.
        stdin_text: Text for its standard input.
        held: Bytes that the workspace held before: one that is too full is not cut short while it is emptied.

    Raises:
        OSError: the program cannot be started.
    """
    start = time.monotonic()
    process = _started(argv, env, stdin_text)
    assert process.stdout is not None
    assert process.stderr is not None
    streams = [(process.stdout, BoundedText(limits.output_chars)), (process.stderr, BoundedText(limits.output_chars))]
    readers = [threading.Thread(target=_drain, args=stream, daemon=True) for stream in streams]
    for reader in readers:
        reader.start()
    try:
        stopped = _watch(process, start + limits.wall_s, max(limits.disk_mb * 1_000_000, held), folder)
    finally:
        kill()
        _kill_group(process)
        for reader in readers:
            reader.join(timeout=5)
        for stream, _ in streams:
            stream.close()
    out, err = (text for _, text in streams)
    code = process.returncode
    return CommandResult(
        exit_code=None if stopped else (128 - code if code < 0 else code),
        stdout=out.text(),
        stderr=err.text(),
        stopped=stopped,
        shortened=bool(out.dropped or err.dropped),
        wall_s=round(time.monotonic() - start, 3),
    )


def _started(argv: Sequence[str], env: Mapping[str, str] | None, stdin_text: str) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as given:  # a pipe could fill up before it is read
        given.write(stdin_text.encode("utf-8", "surrogateescape"))
        given.seek(0)
        return subprocess.Popen(
            list(argv),
            stdin=given if stdin_text else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            start_new_session=True,
        )


def _watch(process: subprocess.Popen[bytes], deadline: float, most: int, folder: Path) -> str | None:
    """Wait for the end; the limit that was reached before it, if any."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return "wall_s"
        try:
            process.wait(timeout=min(_LOOK_S, left))
        except subprocess.TimeoutExpired:
            if size_of(folder) > most:
                return "disk_mb"
        else:  # what was written since the last look counts too
            return "disk_mb" if size_of(folder) > most else None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # the whole group has ended
    process.wait()


def _drain(stream: IO[bytes], text: BoundedText) -> None:
    try:
        while data := os.read(stream.fileno(), _READ):
            text.add(data)
    except (OSError, ValueError):
        pass  # closed under us: nothing more is read
