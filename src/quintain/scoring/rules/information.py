"""Information use: whether changes build on texts that the agent has read."""

from __future__ import annotations

import posixpath
import re

from quintain.scoring.rules.commands import Effect
from quintain.scoring.rules.regression import replacements
from quintain.scoring.rules.view import Call, View

_TOKENS = re.compile(r"[^\W_]{3,}")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]{2,}")
_NAMES = re.compile(r"(?<![\w-])[\w-]{1,200}\.[A-Za-z]\w{0,9}\b")
"""Names of files in texts."""

_MAX_CHARS, _MAX_EDITS = 4000, 50
"""Only so much of a call is examined."""


class _Known:
    """Words, file names and lines of the texts that the agent has read; each text is analysed once, when it is needed."""

    def __init__(self, prompt: str) -> None:
        self._unread = [prompt] if prompt else []
        self._unnamed: list[str] = []
        self._uncut = [prompt]
        self._words: set[str] = set()
        self._names: set[str] = set()
        self._lines: set[str] = set()

    def hear(self, text: str) -> None:
        """Add a message of a person."""
        self._unread.append(text)
        self._uncut.append(text)

    def see(self, text: str | None) -> None:
        """Add the result or the command of a call."""
        if text:
            self._unread.append(text)
            self._unnamed.append(text)

    def touch(self, target: str) -> None:
        """Add a file that a call worked on."""
        self._names.add(posixpath.basename(target))

    def __bool__(self) -> bool:
        return bool(self._unread or self._words)

    def has_seen(self, file: str) -> bool:
        """Whether any call worked on a file of this name, or showed it."""
        name = posixpath.basename(file)
        while self._unnamed and name not in self._names:
            self._names.update(_NAMES.findall(self._unnamed.pop()))
        return name in self._names

    def contains(self, line: str) -> bool:
        """Whether a person wrote the line."""
        while self._uncut and line not in self._lines:
            self._lines.update(one.strip() for one in self._uncut.pop().splitlines())
        return line in self._lines

    def has_any(self, words: set[str]) -> bool:
        """Whether any of the words occurred."""
        while self._unread and self._words.isdisjoint(words):
            self._words |= tokens(self._unread.pop())
        return not self._words.isdisjoint(words)


def tokens(text: str) -> set[str]:
    """Return lower-case words of three characters or more; scripts without spaces as pairs of characters."""
    found = set(_TOKENS.findall(text.lower()))
    if not text.isascii():
        found.update(run[i : i + 2] for run in _WIDE.findall(text) for i in range(len(run) - 1))
    return found


def information_use(view: View) -> list[float | None]:
    """Return for each call that changes something 1 where it builds on what the agent knows, else 0.

    An edit that replaces text builds on having seen the file or on being given the text. Any other change builds on having seen its
    file or on sharing a word with earlier texts. Sharing none shows nothing, since a program has other words than its task: then
    the part is None, as for calls that only look, for unknown tools, and where nothing came before.
    """
    known = _Known(view.prompt)
    heard = iter(view.heard)
    next_heard = next(heard, None)
    parts: list[float | None] = []
    unread: list[Call] = []
    turn = -1
    for call in view.calls:
        if call.turn != turn:
            turn = call.turn
            for earlier in unread:  # calls of one turn do not see each other's results
                known.see(earlier.result)
                known.see(earlier.command)
                if earlier.target and not earlier.failed:
                    known.touch(earlier.target)
            unread.clear()
            while next_heard is not None and next_heard[0] <= turn:
                known.hear(next_heard[1])
                next_heard = next(heard, None)
        parts.append(_informed(call, known))
        if call.target and call.category == "read":
            known.touch(call.target)  # A client that carries calls out in order allows a read and an edit in one turn.
        unread.append(call)
    return parts


def _informed(call: Call, known: _Known) -> float | None:
    if call.effect is Effect.NONE or call.category not in {"write", "execute"} or not call.readable:
        return None
    if call.target and known.has_seen(call.target):
        return 1.0
    replaced = [line for _, old, _ in replacements(call) if (line := max(old.split("\n"), key=len).strip())]
    if replaced and call.target:
        return float(all(map(known.contains, replaced[:_MAX_EDITS])))
    words: set[str] = set()
    for text in _texts(call):
        words |= tokens(text[:_MAX_CHARS])
    if not words or not known:
        return None
    return 1.0 if known.has_any(words) else None


def _texts(call: Call) -> list[str]:
    if call.command:
        return [call.command]
    return [value if isinstance(value, str) else repr(value) for value in call.args.values() if value is not None]
