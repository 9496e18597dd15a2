"""Replace keys, passwords and personal data by `[REDACTED:kind]`, and count them by kind.

One search over all texts of a run finds the matches (see `search`); a run without any is returned unchanged. There are
two levels, `secrets` and `personal`; the default is both. Hashes, UUIDs, base64 images and other long strings stay, unless
their name marks a secret.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from quintain.records.imports import BOTH_LEVELS, RedactionLevel
from quintain.records.record import Record
from quintain.records.trajectory import Action, Actor, OutcomeStatus, SampledTokens, Step, Trajectory, Usage, text_of
from quintain.redaction.credentials import is_stand_in, secret_kind
from quintain.redaction.payment_numbers import is_card
from quintain.redaction.search import Levels, spans_of, texts_with_spans
from quintain.redaction.secrets import Span

R = TypeVar("R", bound=Record)
_SHORT = 48
"""Maximum length of texts to cache: names, types and call ids recur."""
_ROUNDS = 8
"""Maximum number of passes: a marker can expose the beginning of an adjacent secret."""
_NO_TEXT = frozenset({bool, int, float, datetime, Actor, OutcomeStatus, Usage, SampledTokens})
"""Types of fields without text to redact."""
_WITH_ARGS = ("raw_args",)
_DERIVED_FIELDS = ("redactions", "redaction", "identity")
"""Fields that redaction derives instead of reading."""


def redact(run: Trajectory, levels: Collection[RedactionLevel] = BOTH_LEVELS) -> Trajectory:
    """Return a run without secrets and personal data in its fields, including names in free objects.

    Args:
        run: Any run.
        levels: Kinds of data to remove.

    Returns:
        The run itself if nothing is found and `redaction` names these levels, else a copy that names them, with the counts
        added to `redactions`. Changed steps lose their `sampled` tokens, which still spell the text. An id derived from
        the old content is removed.
    """
    return redact_by_step(run, levels)[0]


def redact_by_step(
    run: Trajectory, levels: Collection[RedactionLevel] = BOTH_LEVELS
) -> tuple[Trajectory, Sequence[Counter[str]]]:
    """Redact a run like `redact`, and also return the counts of each step; () if nothing is found."""
    chosen = frozenset(levels)
    run = _searched(run, chosen)
    if not chosen:
        return run, ()
    texts, is_named = texts_of(run)
    found = texts_with_spans(texts, chosen)
    if not found and not is_named and not any(map(_may_contain_escaped_json, texts)):
        return run, ()
    redactor = _Redactor(chosen, frozenset(texts) - found)
    clean = redactor.record(run)
    if clean is run:
        return run, ()
    counts = Counter(run.redactions) + redactor.counts
    if clean.task is not run.task and _repeats_prompt(run):
        repeated = _Redactor(chosen)
        repeated.value(run.task.prompt)
        counts -= repeated.counts
    derived = run.id is not None and run.id == f"traj-{run.identity[:16]}"
    update = {"redactions": dict(counts), **({"id": None} if derived else {})}
    return clean.model_copy(update=update), redactor.by_step


def _searched(run: Trajectory, levels: Levels) -> Trajectory:
    """Return the run with the levels that it is searched for."""
    named = tuple(level for level in BOTH_LEVELS if level in levels)
    return run if run.redaction == named else run.model_copy(update={"redaction": named})


def _repeats_prompt(run: Trajectory) -> bool:
    """Return whether the first message of the user repeats the prompt of the task; both then count once."""
    asked = next((step.message for step in run.steps if step.actor is Actor.USER), None)
    return asked is not None and text_of(asked) == run.task.prompt


def texts_of(run: Trajectory) -> tuple[list[str], bool]:
    """Return every text that redaction reads, including names in free objects, in any order.

    Returns:
        The texts, and whether a name may mark a secret value. False is certain, true is not.
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
    return Record in kind.__mro__  # faster than `isinstance`, which pydantic overrides


def _may_name_a_secret(value: dict[Any, Any], names: Sequence[str]) -> bool:
    """Return whether a name, or the label of a `value`, marks a text, number or list as secret."""
    labels = [value.get("name"), value.get("key")] if "value" in value else ()
    for name in names:
        if secret_kind(name) and value[name] and type(value[name]) is not dict:
            return True
    return any(type(label) is str and secret_kind(label) for label in labels)


def redact_text(text: str, levels: Collection[RedactionLevel] = BOTH_LEVELS) -> tuple[str, Counter[str]]:
    """Return a text without secrets and personal data of these levels, and the number of redactions of each kind."""
    redactor = _Redactor(frozenset(levels))
    return redactor.text(text), redactor.counts


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Sort spans and merge those that overlap; the kind comes from the most certain rule."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):  # stable: the order of the rules decides between equals
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            if span.kind == "email":  # `password@host` of a URL is not an address
                continue
            kind = span.kind if last.kind in _BY_NAME and span.kind not in _BY_NAME else last.kind
            merged[-1] = Span(last.start, max(last.end, span.end), kind)
        else:
            merged.append(span)
    return merged


_BY_NAME = frozenset({"password", "secret", "token", "api_key", "authorization", "cookie", "url_password", "email"})
"""Kinds that a token of known format overrides."""


@dataclass
class _Redactor:
    """Redacts values recursively and counts the redactions."""

    levels: Levels = frozenset(BOTH_LEVELS)
    known: frozenset[str] = frozenset()
    """Texts known to be clean."""
    counts: Counter[str] = field(default_factory=Counter)
    by_step: list[Counter[str]] = field(default_factory=list)
    """Counts of each step so far."""

    def text(self, text: str) -> str:
        """The same object where nothing was found."""
        if self.is_clean(text):
            return text
        for _ in range(_ROUNDS):
            spans = spans_of(text, self.levels)
            if not spans:
                break
            pieces, end = [], 0
            for span in _merge_spans(spans):
                pieces += [text[end : span.start], f"[REDACTED:{span.kind}]"]
                end = span.end
                self.counts[span.kind] += 1
            text = "".join([*pieces, text[end:]])
        return text

    def is_clean(self, text: str) -> bool:
        """Return whether a text is known to be clean, from earlier searches."""
        return text in self.known or (len(text) <= _SHORT and _is_clean(text, self.levels))

    def value(self, value: Any) -> Any:
        """Return the same value if it is clean, else a redacted copy of the same type."""
        kind = type(value)
        if kind is str:
            clean = self.text(value)
            return self.same_json(value, clean) if _may_contain_escaped_json(value) else clean
        if kind is tuple or kind is list:
            return _changed(value, [self.value(item) if item else item for item in value])
        if kind is dict:
            return self.mapping(value)
        if kind is Step:
            return self.step(value)
        return self.record(value) if _is_record(kind) else value

    def step(self, step: Step) -> Step:
        """Redact a step, and count it apart."""
        before, self.counts = self.counts, Counter()
        clean = self.record(step)
        self.by_step.append(self.counts)
        before.update(self.counts)
        self.counts = before
        return clean

    def record(self, record: R) -> R:
        """Redact every field of a record."""
        kind = type(record)
        is_parsed = kind is Action and record.__dict__["args"] is not None
        apart = _WITH_ARGS if is_parsed else _DERIVED_FIELDS if kind is Trajectory else ()
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
        """Redact `raw_args` like `args`, and keep it valid JSON; a secret in both counts once."""
        if not changes and (raw in self.known or not spans_of(raw, self.levels)):
            return {}
        inner = _Redactor(self.levels)
        clean = inner.text(raw)
        if "args" in changes or clean is not raw:
            clean = inner.same_json(raw, clean)
        if "args" not in changes:
            self.counts += inner.counts
        return {"raw_args": clean} if clean is not raw else {}

    def same_json(self, before: str, after: str) -> str:
        """Return `after` if it parses to the redacted values of `before`, else these values as JSON."""
        try:
            original = json.loads(before)
        except (ValueError, RecursionError):
            return after
        inner = _Redactor(self.levels)
        wanted = inner.value(original)
        try:
            if json.loads(after) == wanted:
                return after
        except (ValueError, RecursionError):
            pass
        self.counts |= inner.counts  # the larger of both, because the text counts the same secrets
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
        if type(labelled := value.get("value")) is str and clean.get("value") is labelled:
            label = next((value[key] for key in ("name", "key") if type(value.get(key)) is str), "")
            if kind := secret_kind(label):
                clean["value"] = self.named(kind, labelled)
                changed = changed or clean["value"] is not labelled
        return clean if changed else value

    def named(self, kind: str, value: Any) -> Any:
        """Redact a value under a secret name, even without a matching rule."""
        if isinstance(value, list | tuple):
            return _changed(value, [self.named(kind, item) for item in value])
        if ("personal" if kind == "card" else "secrets") not in self.levels:
            return self.value(value)
        if type(value) is int and kind == "password" and abs(value) > 999:
            self.counts[kind] += 1
            return 0
        if type(value) is not str:
            return self.value(value)
        known = self.text(value)
        if known is not value or not _is_secret_value(kind, value):
            return known
        self.counts[kind] += 1
        return f"[REDACTED:{kind}]"


@lru_cache(maxsize=16_384)
def _is_clean(text: str, levels: Levels) -> bool:
    return not spans_of(text, levels)


def _is_secret_value(kind: str, value: str) -> bool:
    """Return whether a value under a secret name is a secret, not empty, a reference or a path."""
    if not value.strip() or is_stand_in(value) or (kind == "authorization" and len(value) < 8):
        return False
    if kind == "card":
        return is_card(value)
    return kind in {"password", "api_key", "aws_key"} or value[0] not in "/~"


def _is_piece_of_text(value: dict[Any, Any]) -> bool:
    """Return whether an object is a text token as listed by endpoints, not a credential."""
    return "token" in value and ("logprob" in value or "bytes" in value or "id" in value)


def _may_contain_escaped_json(text: str) -> bool:
    return "\\" in text and text[:1] in "{[" and ("\\u00" in text or "\\/" in text)


def _changed(before: Any, after: list[Any]) -> Any:
    for a, b in zip(before, after, strict=True):
        if a is not b:
            return type(before)(after)
    return before
