"""A bound on the time of code of others that Python runs, such as a chat template whose loops never end."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_bound(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the body, in any thread, if it takes longer. One call into C that does not return is not ended."""
    thread, lock, is_over = threading.get_ident(), threading.Lock(), False

    def end() -> None:
        with lock:
            if not is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TimeoutError))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()
