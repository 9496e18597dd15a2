"""Lines of JSON between a host and its child process; standard library only, because adapters run it in other interpreters."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

_ERROR_CHARS = 2000


def serve(answer: Callable[[dict[str, Any]], Any], parent_pipe: int) -> None:
    """Answer requests on stdin until the host closes it.

    Args:
        answer: Returns the JSON value that answers a request. An exception is reported to the host.
        parent_pipe: File descriptor that ends when the host ends; this process and its children are killed then.
    """
    os.set_inheritable(parent_pipe, False)
    threading.Thread(target=_exit_with_host, args=(parent_pipe,), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the environment goes to the log, not between the answers
    requests, sys.stdin = sys.stdin.buffer, open(os.devnull, encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for line in requests:
        try:
            reply: dict[str, Any] = {"value": answer(json.loads(line))}
            encoded = json.dumps(reply, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        except Exception as error:  # the host gets every error of the environment
            reply = {"error": f"{type(error).__name__}: {error}"[:_ERROR_CHARS]}
            encoded = json.dumps(reply).encode()
        answers.write(encoded + b"\n")
        answers.flush()


def _exit_with_host(parent_pipe: int) -> None:
    while os.read(parent_pipe, 1):
        pass
    os.killpg(0, signal.SIGKILL)
