"""Run a process with bounded output, time and disk usage, and kill its process group at the end."""

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

_POLL_S = 0.25
_READ_BYTES = 65_536


class BoundedText:
    """The beginning and the end of a stream of any length."""

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` bytes."""
        self._head_room, self._tail_room = limit // 2, limit - limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.dropped = 0

    def add(self, data: bytes) -> None:
        """Append bytes and drop those in the middle that exceed the limit."""
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
        """Return the kept text, with a note on the number of omitted bytes."""
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
    bytes_before: int = 0,
) -> CommandResult:
    """Run a program until it ends or reaches a limit.

    Args:
        argv: The program and its arguments, run without a shell.
        limits: Enforced here: `wall_s`, `disk_mb` and `output_chars`.
        folder: The workspace, whose size is watched.
        env: The environment; None for that of this process.
        kill: Called before the group is killed, for processes outside the group.
        stdin_text: Standard input.
        bytes_before: Size of the workspace before the run. A workspace that was over the limit may be emptied.
    """
    start = time.monotonic()
    process = _start(argv, env, stdin_text)
    assert process.stdout is not None
    assert process.stderr is not None
    streams = [(process.stdout, BoundedText(limits.output_chars)), (process.stderr, BoundedText(limits.output_chars))]
    readers = [threading.Thread(target=_drain, args=stream, daemon=True) for stream in streams]
    for reader in readers:
        reader.start()
    try:
        stopped = _watch(process, start + limits.wall_s, max(limits.disk_mb * 1_000_000, bytes_before), folder)
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


def _start(argv: Sequence[str], env: Mapping[str, str] | None, stdin_text: str) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as stdin:  # a pipe could fill up before the program reads it
        stdin.write(stdin_text.encode("utf-8", "surrogateescape"))
        stdin.seek(0)
        return subprocess.Popen(
            list(argv),
            stdin=stdin if stdin_text else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            start_new_session=True,
        )


def _watch(process: subprocess.Popen[bytes], deadline: float, max_bytes: int, folder: Path) -> str | None:
    """Wait for the end and return the limit that was exceeded, if any."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return "wall_s"
        try:
            process.wait(timeout=min(_POLL_S, left))
        except subprocess.TimeoutExpired:
            if size_of(folder) > max_bytes:
                return "disk_mb"
        else:  # files written since the last check count too
            return "disk_mb" if size_of(folder) > max_bytes else None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # the whole group has ended
    process.wait()


def _drain(stream: IO[bytes], text: BoundedText) -> None:
    try:
        while data := os.read(stream.fileno(), _READ_BYTES):
            text.add(data)
    except (OSError, ValueError):
        pass  # closed by run_process
