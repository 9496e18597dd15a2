"""Environments in child processes: one that hangs, dies or writes without end costs one episode and is killed.

Host and child exchange lines of JSON over pipes (`child`). A child plays episodes one after the other, each in a new environment. A child
that does not answer in time or breaks the protocol is killed with all its processes, and the next episode gets a new one.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from quintain.errors import InvalidInput, QuintainError, Unavailable
from quintain.records.protocols import Environment, TimeStep
from quintain.records.record import Record
from quintain.records.trajectory import Action, Task
from quintain.records.wording import explain

R = TypeVar("R", bound=Record)

ANSWER_BYTES = 16_000_000
"""Maximum bytes of one answer; a child that writes more is killed."""

AT_ONCE = 8
"""Maximum number of concurrent episodes, and so of processes."""

TIMEOUT_S = 60.0
"""Seconds that a child has for one answer."""


class IsolatedSource:
    """An environment's task source that runs in child processes."""

    at_once = AT_ONCE
    waits = True

    def __init__(
        self,
        reference: str,
        *,
        servers: Path | None = None,
        command: Sequence[str] | None = None,
        timeout_s: float = TIMEOUT_S,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        """Ask a child for the environment's name and version.

        Args:
            reference: As for `registry.task_source`; the child must know it, so it must be built in or an entry point.
            servers: The operator's `environments.toml`, if `reference` may name an MCP server.
            command: Program and arguments of the child, which gets the file descriptor of its lifeline as the last argument; None:
                this interpreter, which opens `reference`.
            timeout_s: Seconds for one answer, such as a step.
            answer_bytes: Maximum bytes of one answer.

        Raises:
            Unavailable: the child does not start or answer, or reports that the environment cannot be used.
        """
        opening = (sys.executable, "-P", "-m", "quintain.environments.isolation.child", reference, str(servers or ""))
        self._started_with = reference, command or opening, timeout_s, answer_bytes
        self._idle: list[_Child] = []
        self._lock = threading.Lock()
        try:
            about = self._once({"op": "describe"})
        except QuintainError:  # its traceback keeps this object alive
            self.close()
            raise
        self.id, self.version = str(about["id"]), str(about["version"])
        self.players = tuple(map(str, about.get("players", ())))

    def tasks(self, split: str, n: int, seed: int) -> list[Task]:
        """Return `n` tasks as the environment draws them."""
        drawn = self._once({"op": "tasks", "split": split, "n": n, "seed": seed})
        return [_read(Task, task, f"a task of {self.id}") for task in drawn]

    def make(self) -> Environment:
        """Return an environment that runs in a child process."""
        return _IsolatedEnvironment(self, self.id)

    def close(self) -> None:
        """Kill the children without an episode."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.kill()

    __del__ = close

    def lend(self) -> _Child:
        """Return a child for one episode: an idle one, else a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Child(*self._started_with)

    def take_back(self, child: _Child) -> None:
        """Keep a child for the next episode."""
        if child.alive:
            with self._lock:
                self._idle.append(child)

    def _once(self, request: dict[str, Any]) -> Any:
        child = self.lend()
        try:
            return child.ask(request)
        finally:
            self.take_back(child)


class _IsolatedEnvironment:
    system_prompt = ""
    tools: tuple[dict[str, Any], ...] = ()
    max_turns = 1

    def __init__(self, source: IsolatedSource, environment_id: str) -> None:
        self.id = environment_id
        self._source = source
        self._child: _Child | None = None

    def reset(self, task: Task) -> TimeStep:
        self._child = self._source.lend()
        about = self._child.ask({"op": "reset", "task": task.model_dump(mode="json", exclude_defaults=True)})
        self.system_prompt, self.tools = str(about["system_prompt"]), tuple(about["tools"])
        self.max_turns = int(about["max_turns"])
        if about.get("takes_answers"):
            self.take_answer = self._take_answer
        return _read(TimeStep, about["first"], "the result of reset")

    def step(self, actions: Sequence[Action]) -> TimeStep:
        assert self._child is not None, "reset comes before step"
        sent = [action.model_dump(mode="json", exclude_defaults=True) for action in actions]
        return _read(TimeStep, self._child.ask({"op": "step", "actions": sent}), "the result of step")

    def _take_answer(self, text: str) -> TimeStep:
        assert self._child is not None, "reset comes before take_answer"
        return _read(TimeStep, self._child.ask({"op": "take_answer", "text": text}), "the result of take_answer")

    def close(self) -> None:
        self.__dict__.pop("take_answer", None)  # a bound method: with it the source would live until garbage collection
        child, self._child = self._child, None
        if child is not None and child.alive:
            try:
                child.ask({"op": "close"})
            finally:
                self._source.take_back(child)


def _read(kind: type[R], value: Any, what: str) -> R:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(explain(error, what), code="environment_garbage") from None


class _Child:
    """One child process; it answers one request at a time."""

    def __init__(self, reference: str, command: Sequence[str], timeout_s: float, answer_bytes: int) -> None:
        self._reference, self._timeout_s, self._answer_bytes = reference, timeout_s, answer_bytes
        end, self._lifeline = os.pipe()  # the kernel closes it when this process ends for any reason
        try:
            self._process = subprocess.Popen(
                [*command, str(end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(end,),
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            os.close(self._lifeline)
            self._lifeline = -1
            raise Unavailable(
                f"expected a program that starts for {reference}, got {command[0]} ({error.strerror}); correct its path",
                code="environment_broken",
            ) from None
        finally:
            os.close(end)
        self._rest = b""

    @property
    def alive(self) -> bool:
        return self._process.poll() is None and self._lifeline >= 0

    def ask(self, request: dict[str, Any]) -> Any:
        """Return the child's answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(to_json(request) + b"\n")
            line = self._line(time.monotonic() + self._timeout_s)
            answer = from_json(line, allow_inf_nan=False)
            if not isinstance(answer, dict) or not answer.keys() & {"value", "error"}:
                raise ValueError(f"bad answer {line[:60]!r}")
        except TimeoutError:
            self.kill()
            raise Unavailable(
                f"{self._reference} did not answer within {self._timeout_s:g} s and was killed",
                code="environment_timeout",
            ) from None
        except (OSError, ValueError, EOFError) as error:
            self.kill()
            raise Unavailable(
                f"expected an answer of the process of {self._reference}, got: {str(error)[:200]}; it was killed",
                code="environment_died",
            ) from None
        if "error" in answer:
            raise Unavailable(f"{self._reference} failed: {answer['error']}", code="environment_failed")
        return answer["value"]

    def _line(self, until: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        pieces, size = [self._rest], len(self._rest)
        while b"\n" not in pieces[-1]:
            ready, _, _ = select.select([descriptor], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError
            piece = os.read(descriptor, 1 << 20)
            if not piece:
                raise EOFError("the process ended")
            pieces.append(piece)
            size += len(piece)
            if size > self._answer_bytes:
                raise ValueError(f"an answer of more than {self._answer_bytes} bytes")
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return line

    def kill(self) -> None:
        """Kill the process and all processes that it started."""
        if self._lifeline < 0:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        os.close(self._lifeline)
        self._lifeline = -1
