"""Keys, passwords and personal data out of what is imported: each becomes `[REDACTED:kind]`, and is counted by kind.

One search over all texts of a run finds those that a rule has something to take from (see `search`). A run without one, and
without a value that its name or its escapes may hide, is handed back as it is. On by default: secrets, e-mail addresses,
payment cards and IBANs. Hashes, UUIDs, base64 pictures and other long strings stay, unless a name says that they are secret.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from quintain.records.record import Record
from quintain.records.trajectory import Action, Actor, OutcomeStatus, SampledTokens, Step, Trajectory, Usage, text_of
from quintain.redaction.credentials import is_stand_in, secret_kind
from quintain.redaction.personal import OptionalKind, is_card
from quintain.redaction.search import side_by_side, spans_of, suspects
from quintain.redaction.secrets import Span

R = TypeVar("R", bound=Record)
_SHORT = 48
"""Characters of texts that come again and again: names, types, ids of calls."""
_ROUNDS = 8
"""A marker can uncover the beginning of another secret, which stood against the one before it."""
_NO_TEXT = frozenset({bool, int, float, datetime, Actor, OutcomeStatus, Usage, SampledTokens})
"""Types of fields that need no look."""
_WITH_ARGS = ("raw_args",)
_OF_RUN = ("redactions", "identity")
"""What a run knows of itself."""


def redact(run: Trajectory, also: Collection[OptionalKind] = ()) -> Trajectory:
    """A run without secrets and personal data in any of its fields, names of fields in free objects included.

    Args:
        run: Any run; where nothing is found the same object comes back.
        also: Further kinds to redact.

    Returns:
        The run with the counts added to `redactions`. Steps whose text has changed lose their `sampled` tokens, which
        would still spell it, and the run loses an id that was made from its old content.
    """
    known: frozenset[str] = frozenset()
    if not also:
        texts, is_named = texts_of(run)
        joined = side_by_side(texts)
        found = suspects(texts, joined)
        if not found and not is_named and not ("\\" in joined and any(map(_may_hide_json, texts))):
            return run
        known = frozenset(texts) - found
    redactor = _Redactor(frozenset(also), known)
    clean = redactor.record(run)
    if clean is run:
        return run
    counts = Counter(run.redactions) + redactor.counts
    if clean.task is not run.task and _asks_with_its_prompt(run):
        said_twice = _Redactor(redactor.also)
        said_twice.value(run.task.prompt)
        counts -= said_twice.counts
    derived = run.id is not None and run.id == f"traj-{run.identity[:16]}"
    return clean.model_copy(update={"redactions": dict(counts), **({"id": None} if derived else {})})


def _asks_with_its_prompt(run: Trajectory) -> bool:
    """Is the prompt of the task also what the user says first? Then it is one text."""
    asked = next((step.message for step in run.steps if step.actor is Actor.USER), None)
    return asked is not None and text_of(asked) == run.task.prompt


def texts_of(run: Trajectory) -> tuple[list[str], bool]:
    """Every text that redaction looks at, names in free objects included, in no order.

    Returns:
        The texts, and whether there may be a value whose name says that it is secret. False is sure, true is not.
    """
    texts: list[str] = []
    is_named = False
    stack: list[Any] = [run]
    while stack:
        holder = stack.pop()
        kind = type(holder)
        if kind is tuple or kind is list:
            items: Iterable[Any] = holder
        elif kind is dict:
            names = [name for name in holder if type(name) is str]
            is_named = is_named or _may_name_a_secret(holder, names)
            texts += names
            items = holder.values()
        elif _is_record(kind):
            items = holder.__dict__.values()
        else:
            continue
        for item in items:
            if item:
                if type(item) is str:
                    texts.append(item)
                elif type(item) not in _NO_TEXT:
                    stack.append(item)
    return texts, is_named


def _is_record(kind: type) -> bool:
    return Record in kind.__mro__  # pydantic makes `isinstance` a call of many


def _may_name_a_secret(value: dict[Any, Any], names: Sequence[str]) -> bool:
    """Does one of the names, or the label of a `value`, say that a text, number or list is secret?"""
    labels = [value.get("name"), value.get("key")] if "value" in value else ()
    for name in names:
        if secret_kind(name) and value[name] and type(value[name]) is not dict:
            return True
    return any(type(label) is str and secret_kind(label) for label in labels)


def redact_text(text: str, also: Collection[OptionalKind] = ()) -> tuple[str, Counter[str]]:
    """A text without secrets and personal data, and how many of each kind it held."""
    redactor = _Redactor(frozenset(also))
    return redactor.text(text), redactor.counts


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that overlap made one, of the kind of the one that was found by the most certain rule."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):  # stable: the order of the rules decides between equals
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            if span.kind == "email":  # `password@host` of a URL is no address
                continue
            kind = span.kind if last.kind in _BY_NAME and span.kind not in _BY_NAME else last.kind
            merged[-1] = Span(last.start, max(last.end, span.end), kind)
        else:
            merged.append(span)
    return merged


_BY_NAME = frozenset({"password", "secret", "token", "api_key", "authorization", "cookie", "url_password", "email"})
"""Kinds that give way to that of a token of known shape."""


@dataclass
class _Redactor:
    """Walks values and keeps count."""

    also: frozenset[OptionalKind]
    known: frozenset[str] = frozenset()
    """Texts of which it is known that they hold nothing."""
    counts: Counter[str] = field(default_factory=Counter)

    def text(self, text: str) -> str:
        """The same object where nothing was found."""
        if self.is_clean(text):
            return text
        for _ in range(_ROUNDS):
            spans = spans_of(text, self.also)
            if not spans:
                break
            pieces, end = [], 0
            for span in _merged(spans):
                pieces += [text[end : span.start], f"[REDACTED:{span.kind}]"]
                end = span.end
                self.counts[span.kind] += 1
            text = "".join([*pieces, text[end:]])
        return text

    def is_clean(self, text: str) -> bool:
        """Is it known, without a search, that a text holds nothing?"""
        return text in self.known or (len(text) <= _SHORT and _is_clean(text, self.also))

    def value(self, value: Any) -> Any:
        """The same value where nothing was found, else a copy of the same type."""
        kind = type(value)
        if kind is str:
            clean = self.text(value)
            return self.same_json(value, clean) if _may_hide_json(value) else clean
        if kind is tuple or kind is list:
            return _changed(value, [self.value(item) if item else item for item in value])
        if kind is dict:
            return self.mapping(value)
        return self.record(value) if _is_record(kind) else value

    def record(self, record: R) -> R:
        """Every field of a record, whatever it is called."""
        kind = type(record)
        is_parsed = kind is Action and record.__dict__["args"] is not None
        apart = _WITH_ARGS if is_parsed else _OF_RUN if kind is Trajectory else ()
        changes = {
            name: clean
            for name, value in record.__dict__.items()
            if value and type(value) not in _NO_TEXT and name not in apart and (clean := self.value(value)) is not value
        }
        if is_parsed and (raw := record.__dict__["raw_args"]):
            changes |= self.arguments(raw, changes)
        if kind is Step and changes:
            changes["sampled"] = None
        return record.model_copy(update=changes) if changes else record

    def arguments(self, raw: str, changes: dict[str, Any]) -> dict[str, Any]:
        """`raw_args` without what went from `args`, and still JSON where it was; what both hold counts once."""
        if not changes and (raw in self.known or not spans_of(raw, self.also)):
            return {}
        inner = _Redactor(self.also)
        clean = inner.text(raw)
        if "args" in changes or clean is not raw:
            clean = inner.same_json(raw, clean)
        if "args" not in changes:
            self.counts += inner.counts
        return {"raw_args": clean} if clean is not raw else {}

    def same_json(self, before: str, after: str) -> str:
        """`after`, if it holds the values that redaction leaves of `before`; else those values as JSON."""
        try:
            original = json.loads(before)
        except (ValueError, RecursionError):
            return after
        inner = _Redactor(self.also)
        wanted = inner.value(original)
        try:
            if json.loads(after) == wanted:
                return after
        except (ValueError, RecursionError):
            pass
        self.counts |= inner.counts  # the larger of both: what the text has shown was counted already
        return json.dumps(wanted, ensure_ascii=False)

    def mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        clean: dict[Any, Any] = {}
        changed, is_text = False, _is_piece_of_text(value)
        for key, item in value.items():
            name, kind = key, None
            if type(key) is str:
                kind = None if is_text else secret_kind(key)
                name = self.text(key)
            while name in clean:  # two keys that became the same marker
                name = f"{name}'"
            clean[name] = kept = self.named(kind, item) if kind else self.value(item)
            changed = changed or kept is not item or name is not key
        # {"name": "API_KEY", "value": "..."}, as headers and variables are often listed.
        if type(given := value.get("value")) is str and clean.get("value") is given:
            label = next((value[key] for key in ("name", "key") if type(value.get(key)) is str), "")
            if kind := secret_kind(label):
                clean["value"] = self.named(kind, given)
                changed = changed or clean["value"] is not given
        return clean if changed else value

    def named(self, kind: str, value: Any) -> Any:
        """A value under a name that says secret: texts go even where they look like nothing."""
        if isinstance(value, list | tuple):
            return _changed(value, [self.named(kind, item) for item in value])
        if type(value) is int and kind == "password" and abs(value) > 999:
            self.counts[kind] += 1
            return 0
        if type(value) is not str:
            return self.value(value)
        known = self.text(value)
        if known is not value or not _is_given(kind, value):
            return known
        self.counts[kind] += 1
        return f"[REDACTED:{kind}]"


@lru_cache(maxsize=16_384)
def _is_clean(text: str, also: frozenset[OptionalKind]) -> bool:
    return not spans_of(text, also)


def _is_given(kind: str, value: str) -> bool:
    """Was a secret given here, and not left open, referred to, or found elsewhere?"""
    if not value.strip() or is_stand_in(value) or (kind == "authorization" and len(value) < 8):
        return False
    if kind == "card":
        return is_card(value)
    return kind in {"password", "api_key", "aws_key"} or value[0] not in "/~"


def _is_piece_of_text(value: dict[Any, Any]) -> bool:
    """Is this a token of text, as endpoints list them, and no key to anything?"""
    return "token" in value and ("logprob" in value or "bytes" in value or "id" in value)


def _may_hide_json(text: str) -> bool:
    return "\\" in text and text[:1] in "{[" and ("\\u00" in text or "\\/" in text)


def _changed(before: Any, after: list[Any]) -> Any:
    for a, b in zip(before, after, strict=True):
        if a is not b:
            return type(before)(after)
    return before
