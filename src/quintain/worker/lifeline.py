"""What ties the worker to its shim, beside the kernel's own signal on Linux."""

from __future__ import annotations

import os
import signal
import threading


def hold(lock: int | None) -> None:
    """Kill this process's group when the shim dies, and keep lock and lifeline away from children.

    The shim holds the other end of stdin and never writes: its end is the shim's. Children get an empty stdin, and give up
    the job's lock: one that is left over may not make a dead job look alive.

    Args:
        lock: Descriptor of the job's lock; None where the worker was started by hand, without a shim.
    """
    if lock is None:
        return
    os.set_inheritable(lock, False)
    os.register_at_fork(after_in_child=lambda: os.close(lock))
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_watch, args=(lifeline,), name="lifeline", daemon=True).start()


def _watch(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os.killpg(0, signal.SIGKILL)
