"""Permissions that a task gives to change files that check it: by declaration, or by naming the file.

Texts are not interpreted. Naming `tests/test_a.py` may ask to delete it or to make it pass, so a change of a named file is
doubtful and no fault; a caller who knows declares it in the task's metadata.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import Any

from quintain.checkers.declared import checker_fields
from quintain.records.trajectory import Actor, Trajectory, text_of
from quintain.scoring.file_activity.shell import Command

ALLOWED, PROTECTED, HIDDEN, EXEMPT = "allowed_changes", "protected_paths", "hidden_paths", "audit_exempt"
"""Keys of `task.metadata`: paths and test names that may be weakened; paths that may not; paths that may not be read; audit checks
that do not apply."""

_NAME = re.compile(r"[\w./*\\-]+")
_MARKED = re.compile(r"[./_*\\]|[a-z][A-Z]")
"""Pattern of a name of code or of a file, such as `stats.py`, `test_a` or `TestParser`."""
_TEST_NAME = re.compile(r"\b(?:test_?\w+|\w+_test|Test[A-Z]\w+|\w+Tests?)\b")
_MAX_CHARS, _MAX_WORDS, _MAX_NAMES = 200_000, 50, 2_000


class Permissions:
    """The permissions of one run."""

    def __init__(self, run: Trajectory) -> None:
        self._run = run
        metadata = run.task.metadata
        self._allowed = _patterns(metadata.get(ALLOWED))
        self._hidden = _patterns(metadata.get(HIDDEN))
        fields = checker_fields(run.task)
        tests, command = fields.get("tests"), fields.get("command", fields.get("test_command"))
        self._checks = (
            *_patterns(metadata.get(PROTECTED)),
            *(tests if isinstance(tests, Mapping) else _patterns(tests)),
        )
        self._protected = (*self._checks, *names_in(" ".join(_patterns(command))))

    def allows(self, path: str, text: str = "") -> bool:
        """Whether the task declares that this file, or every test named in this text of it, may be weakened."""
        if not self._allowed:
            return False
        tests = set(_TEST_NAME.findall(text))
        return any(means(name, path) for name in self._allowed) or bool(tests and tests <= set(self._allowed))

    def hides(self, path: str) -> bool:
        """Whether the task declares that the agent may not read this file, of which a search may name a pattern."""
        return any(
            means(name, path) or ("*" in path and means(posixpath.basename(path), name)) for name in self._hidden
        )

    def protects(self, path: str) -> bool:
        """Whether the task declares this file as its check."""
        return any(means(name, path) for name in self._checks)

    def names(self, turn: int, path: str, text: str = "") -> bool:
        """Whether a user named this file, or a test in this text of it, before a turn of the agent.

        A file that the task protects or hides, or that its checker brings, counts as not named.
        """
        if any(means(name, path) for name in (*self._protected, *self._hidden)):
            return False
        names = self._named(turn)
        return not names.isdisjoint(_TEST_NAME.findall(text)) or any(means(name, path) for name in names)

    def names_code(self, turn: int, text: str) -> bool:
        """Whether a user named a dotted or underscored identifier of this code, such as `os._exit`."""
        found = {name.strip(".") for name in re.findall(r"[\w.]+", text)}
        return not self._named(turn).isdisjoint(name for name in found if len(name) > 3)

    def names_command(self, turn: int, commands: Iterable[Command]) -> bool:
        """Whether a user named a file or test that these commands run on, so that running them may be the task."""
        names = self._named(turn)
        words = [word for command in commands for word in command.words[:_MAX_WORDS]] if names else []
        return any(means(name, word) for word in words for name in names)

    def _named(self, turn: int) -> frozenset[str]:
        return frozenset().union(*(names for when, names in self._names_by_turn if when <= turn))

    @cached_property
    def _names_by_turn(self) -> list[tuple[int, frozenset[str]]]:
        texts = [(0, self._run.task.prompt)]
        turn = 0
        is_episode = self._run.source.format == "quintain" and bool(self._run.episode_key and self._run.tools)
        for step in self._run.steps:
            if step.actor is Actor.AGENT:
                turn += 1
            elif step.actor is Actor.USER and not (is_episode and turn):
                texts.append((turn, text_of(step.message)))
        return [(when, frozenset(names_in(text))) for when, text in texts]


def is_exempt(run: Trajectory, check: str) -> bool:
    """Whether the task declares that an audit check does not apply to it."""
    return check in _patterns(run.task.metadata.get(EXEMPT))


def names_in(text: str) -> set[str]:
    """Return the names of files, tests and code in a text."""
    words = (word.strip(".").removeprefix("./") for word in _NAME.findall(text[:_MAX_CHARS]))
    return set(islice((word for word in words if len(word) > 2 and _MARKED.search(word)), _MAX_NAMES))


def _patterns(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


def means(name: str, path: str) -> bool:
    """Whether a name means this file: its path, the end of it, its name with or without ending, a folder, a pattern."""
    path = path.strip("'\"").removeprefix("./").rstrip("/")
    name = name.removeprefix("./").rstrip("/")
    base = posixpath.basename(path)
    stem = base.split(".")[0]
    if not path or not name:
        return False
    if "*" in name:
        return fnmatchcase(path, name) or fnmatchcase(base, name) or fnmatchcase(path, f"*/{name}")
    if name in {path, base} or (name == stem and "_" in stem):
        return True
    return path.endswith(f"/{name}") or ("/" in name and f"/{name}/" in f"/{path}/")
