"""Equality of two formulas, decided by a child process with math-verify under a limit of time and memory."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from threading import Lock, Timer

from quintain.errors import Unavailable

MAX_CHARS = 1000
"""Characters of a formula that is compared."""
_WALL_S = 30.0
CPU_S = 2.0
"""CPU seconds for one comparison."""
_MODULE = "quintain.checkers.math_equality_child"


def equal_formulas(expected: str, stated: str) -> bool | None:
    """Whether two formulas in LaTeX without dollar signs are equal, see `math_equality_child.compare`.

    None also: too long, or not decided in time.
    """
    if max(len(expected), len(stated)) > MAX_CHARS:
        return None
    try:
        return _cached(expected, stated)
    except Unavailable:
        return None


@lru_cache(maxsize=4096)
def _cached(expected: str, stated: str) -> bool | None:
    return _CHILD.ask(expected, stated)


class ComparisonProcess:
    """A child process that compares formulas: started with the first question, and again after it ended."""

    def __init__(self, cpu_s: float = CPU_S) -> None:
        """Set the CPU seconds for one question."""
        self._command = [
            sys.executable,
            "-P",
            "-m",
            _MODULE,
            str(cpu_s),
        ]  # -P: agents may write to the working directory
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, expected: str, stated: str) -> bool | None:
        """Whether two formulas are equal; None also where the question ran into a limit.

        Raises:
            Unavailable: the child cannot be started.
        """
        question = json.dumps([expected, stated])
        with self._lock:
            for _ in range(2):  # an idle child may end just when a question is sent
                answer = self._answer(question)
                if answer:
                    verdict: bool | None = json.loads(answer)
                    return verdict
                ended = self._end()
                if ended != -getattr(signal, "SIGALRM", 0):
                    return None
            return None

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _answer(self, question: str) -> str:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = Timer(_WALL_S, process.kill)
        watchdog.daemon = True
        watchdog.start()
        try:
            process.stdin.write(question + "\n")
            process.stdin.flush()
            return process.stdout.readline()
        except OSError:
            return ""
        finally:
            watchdog.cancel()

    def _start(self) -> subprocess.Popen[str]:
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=null, text=True, encoding="utf-8"
            )
        except OSError as error:
            raise Unavailable(f"cannot start the process that compares formulas: {error}") from None
        return self._process

    def _end(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        assert process.stdout is not None
        process.stdout.close()
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


_CHILD = ComparisonProcess()
atexit.register(_CHILD.close)
