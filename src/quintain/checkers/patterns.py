"""Match the last message against the task's pattern, with a time limit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from quintain.checkers.declared import checker_fields
from quintain.records.score import CheckResult
from quintain.records.trajectory import Task

TIMEOUT_S = 1.0
"""Time limit of a search, in seconds."""
_MAX_PATTERN = 10_000


def check_pattern(task: Task, messages: Iterable[str]) -> CheckResult:
    """Score 1 if `checker.pattern` is found in the last message (`full`: matches all of it), else 0.

    There is no score without a valid pattern, or if the search takes more than `TIMEOUT_S`.

    The checker has `pattern`, `flags` (any of i, m, s, x) and `full`; the messages come newest first.
    """
    fields = checker_fields(task)
    pattern, flags = fields.get("pattern"), fields.get("flags", "")
    if not isinstance(pattern, str) or not pattern:
        remedy = "record it as task.metadata.checker = {'type': 'regex', 'pattern': ...}"
        return CheckResult(None, f"the task states no pattern; {remedy}")
    if not isinstance(flags, str) or set(flags.lower()) - set("imsx"):
        return CheckResult(None, f"expected checker.flags of i, m, s, x, got {flags!r:.60}; correct it in the task")
    message = next(iter(messages), None)
    if message is None:
        return CheckResult(None, "expected a message of the agent, got none: the run contains no text of it")
    return search(pattern, message, flags=flags.lower(), full=fields.get("full") is True)


def search(pattern: str, text: str, *, flags: str = "", full: bool = False) -> CheckResult:
    """Score 1 if a pattern is found in a text (`full`: matches all of it), else 0; no score past `TIMEOUT_S`.

    Space around the text is not searched; flags are any of i, m, s, x.
    """
    try:
        compiled = compile_pattern(pattern, flags)
    except ValueError as error:
        return CheckResult(None, f"checker.pattern cannot be used: {error}")
    look = compiled.fullmatch if full else compiled.search
    try:
        found = look(text.strip(), timeout=TIMEOUT_S)
    except TimeoutError:
        remedy = "simplify checker.pattern (nested repetition is what takes long)"
        return CheckResult(None, f"the search took more than {TIMEOUT_S:g} s; {remedy}")
    except MemoryError:
        return CheckResult(None, "the search took too much memory; simplify checker.pattern")
    if found:
        return CheckResult(1.0, f"The last message matches at {found.start()}: {found.group()[:60]!r}.")
    return CheckResult(0.0, "The last message does not match the pattern.")


@lru_cache(maxsize=512)
def compile_pattern(pattern: str, flags: str) -> Any:
    """Return the compiled pattern.

    Raises:
        ValueError: not a valid pattern, or longer than `_MAX_PATTERN`.
    """
    import regex

    if len(pattern) > _MAX_PATTERN:
        raise ValueError(f"expected a pattern of at most {_MAX_PATTERN:,} characters, got {len(pattern):,}")
    try:
        return regex.compile(
            pattern, sum({"i": regex.I, "m": regex.M, "s": regex.S, "x": regex.X}[flag] for flag in set(flags))
        )
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(f"expected a pattern, got {pattern!r:.60} ({error or type(error).__name__})") from None
