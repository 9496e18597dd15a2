"""The form in which callers write a reward or a scorer: a name, weighted names, or parts with settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.labels.judging import Rubric
from quintain.records.labels.reward import DECLARED, MAX_JUDGES, MAX_PARTS, Combine, Declared
from quintain.records.text import require_clean
from quintain.records.wording import clip, nearest, shown
from quintain.scoring.declared import DEFAULTS, read_declared
from quintain.scoring.mix import MixScorer
from quintain.scoring.recorded import OF_RATERS, source_of
from quintain.scoring.registry import scorer_names

RewardInput = str | dict[str, Any]
"""`"outcome"`, `{"outcome": 0.8, "length": 0.2}`, `{"type": "length", ...}`, or `{"parts": ..., "combine": ..., "cap": ...}`."""

_LONG = ("parts", "combine", "cap")
_JUDGE_FIELDS = ("judge", "rubric", "mode")
_COMBINE: tuple[Combine, ...] = get_args(Combine)
_JUDGE_MODES = ("score", "group")


class ParsedPart(NamedTuple):
    """A part of a reward as its caller wrote it."""

    name: str
    weight: float = 1.0
    declared: Declared | None = None
    judges: tuple[str, ...] = ()
    """Who judges in a job: `endpoint:NAME` or an agent, each."""
    rubric: str | Mapping[str, Any] | Rubric | None = None
    mode: str | None = None


class ParsedReward(NamedTuple):
    """A reward as its caller wrote it, with checked weights; names are not resolved."""

    parts: tuple[ParsedPart, ...]
    mixed: bool
    """Whether it was written as a mix; a single scorer has no weights."""
    combine: Combine = "mean"
    cap: float | None = None


def parse_reward(value: object, where: str, *, combine: Combine = "mean", cap: float | None = None) -> ParsedReward:
    """Parse a reward.

    `combine` and `cap` count where the value does not set them; `where` names the argument in messages.

    Raises:
        InvalidInput: The value is not of a known form, or a setting is out of bounds.
    """
    if isinstance(value, str):
        return ParsedReward((_named(value, where),), False, combine, cap)
    if not isinstance(value, Mapping) or not value:
        raise InvalidInput(
            f"expected {where} to be a name or a mix of names and weights, got {shown(value)}; give one "
            "such as {'outcome': 0.8, 'length': 0.2}"
        )
    require_clean(value, where)
    if isinstance(value.get("type"), str):
        declared = read_declared(value, where)
        return ParsedReward((ParsedPart(declared.label, declared=declared),), False, combine, cap)
    if "parts" in value:
        combine, cap = _combined(value, where, combine, cap)
        inner = value["parts"]
        if isinstance(inner, str) or (isinstance(inner, Mapping) and isinstance(inner.get("type"), str)):
            return parse_reward(inner, f"{where}.parts", combine=combine, cap=cap)
        value, where = inner, f"{where}.parts"
        if not isinstance(value, Mapping) or not value:
            raise InvalidInput(f"expected {where} to be a name or a mix of names and weights, got {shown(value)}")
    elif beside := sorted({"combine", "cap"} & set(value) - set(scorer_names())):
        raise InvalidInput(
            f"{where}: expected {beside[0]} beside parts, got it among the weights; give {{'parts': {{'outcome': 1, 'length': 1}}, "
            f"{beside[0]!r}: {value[beside[0]]!r:.40}}}"
        )
    if len(value) > MAX_PARTS:
        raise InvalidInput(f"{where}: expected at most {MAX_PARTS} parts, got {len(value)}; leave some out")
    parts = tuple(_part(str(name), entry, where) for name, entry in value.items())
    MixScorer.require_weights([(part.name, part.weight) for part in parts], combine)
    return ParsedReward(parts, True, combine, cap)


def _combined(
    value: Mapping[str, Any], where: str, combine: Combine, cap: float | None
) -> tuple[Combine, float | None]:
    if unknown := sorted(set(map(str, value)) - set(_LONG)):
        raise InvalidInput(f"{where}.{clip(unknown[0])} is not a known field; beside parts there are combine and cap")
    combine, cap = value.get("combine", combine), value.get("cap", cap)
    if combine not in _COMBINE:
        raise InvalidInput(f"{where}.combine: expected {', '.join(_COMBINE)}, got {shown(combine)}; correct it")
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int | float) or not 0 < cap <= 1):
        raise InvalidInput(f"{where}.cap: expected a number above 0 and at most 1, got {shown(cap)}; correct it")
    return combine, cap


def _named(name: str, where: str) -> ParsedPart:
    if not 0 < len(name) <= 300:
        raise InvalidInput(
            Hint(
                f"{where}: expected the name of a scorer, got {len(name):,} characters; see ",
                call("list_library", kind="scorers"),
            )
        )
    return ParsedPart(name)


def _part(name: str, part: object, where: str) -> ParsedPart:
    """Parse one part of a mix: its weight, or an object with its weight and settings."""
    if not isinstance(part, Mapping):
        return _named(name, where)._replace(weight=_weight(name, part, where))
    settings, where = dict(part), f"{where}[{clip(name)!r}]"
    weight = _weight(name, settings.pop("weight", 1.0), where)
    if source_of(name).scorer in OF_RATERS or "judge" in settings:
        return _judged(name, weight, settings, where)
    if settings and name in DECLARED:
        settings.setdefault("type", name)
    if "type" not in settings:
        if settings:
            raise InvalidInput(
                f"{where}.{clip(str(next(iter(settings))))} is not a known field; a part has weight, and type with its "
                "settings or judge with rubric and mode; a domain profile is the argument `profile` of score_trajectories"
            )
        return _named(name, where)._replace(weight=weight)
    declared = read_declared(settings if name == settings["type"] else {"name": name, **settings}, where)
    if declared.label in scorer_names() and declared.label not in DEFAULTS:
        raise InvalidInput(f"{where}: expected a new name, got that of another scorer; rename it")
    return ParsedPart(declared.label, weight, declared)


def _judged(name: str, weight: float, settings: dict[str, Any], where: str) -> ParsedPart:
    if unknown := sorted(set(map(str, settings)) - set(_JUDGE_FIELDS)):
        raise InvalidInput(
            f"{where}.{clip(unknown[0])} is not a known field{nearest(unknown[0], _JUDGE_FIELDS)}; a judge has weight, "
            f"{', '.join(_JUDGE_FIELDS)}"
        )
    if source_of(name).scorer != "judge":
        raise InvalidInput(f"{where}: a judge is named judge or judge:RUBRIC, got {clip(name)!r}; rename it")
    judge, rubric, mode = (settings.get(field) for field in _JUDGE_FIELDS)
    judges = () if judge is None else tuple(judge) if isinstance(judge, list | tuple) else (judge,)
    if not all(isinstance(one, str) for one in judges) or judge in ([], ()):
        raise InvalidInput(
            f"{where}.judge: expected endpoint:NAME, an agent, or a list of them, got {shown(judge)}; correct it"
        )
    if len(set(judges)) < len(judges) or len(judges) > MAX_JUDGES:
        raise InvalidInput(
            f"{where}.judge: expected at most {MAX_JUDGES} different judges, got {shown(judge)}; leave some out"
        )
    if rubric is not None and not isinstance(rubric, str | Mapping):
        raise InvalidInput(
            f"{where}.rubric: expected a name or an object with criteria, got {shown(rubric)}; correct it"
        )
    if mode is not None and mode not in _JUDGE_MODES:
        raise InvalidInput(f"{where}.mode: expected {' or '.join(_JUDGE_MODES)}, got {shown(mode)}; correct it")
    return ParsedPart(name, weight, judges=judges, rubric=rubric, mode=mode)


def _weight(name: str, weight: object, where: str) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise InvalidInput(f"{where}: expected the weight of {shown(name)} to be a number >= 0, got {shown(weight)}")
    if not weight <= 1e6:
        raise InvalidInput(f"{where}: weight of {shown(name)} is {weight!r}; only ratios matter: valid: 0..1e+06")
    return float(weight)
