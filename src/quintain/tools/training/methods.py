"""Training methods: descriptions, settings, and the check of given settings."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.dataset import DatasetKind
from quintain.records.hyperparameters.foreign_settings import RENAMED
from quintain.records.hyperparameters.methods import CONFIGS, DATASET_KINDS, ONLINE_METHODS, PPOConfig, TrainingConfig
from quintain.records.hyperparameters.setting_aliases import canonical
from quintain.records.hyperparameters.setting_groups import Settings
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.wording import clip, explain, list_names, nearest, shown, valid_fields

S = TypeVar("S", bound=Settings)

EVOLVE = "evolve"
"""The method that trains with other methods, round after round."""
STAGES = {"pt": "pretrain", "rm": "reward", "gkd": "distill", "group_norm": "grpo", "gae": "ppo"}
"""Stage of LLaMA-Factory or ms-swift, or estimator of advantages of OpenRLHF -> method."""
_STATE_METHOD = ("stage", "rl", "rlhf_type", "adv_estimator", "advantage_estimator")
"""Settings of other trainers that state the method, which is named beside the settings here."""

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

METHODS: dict[str, str] = _TABLES["methods"]


_EXPLAINED = 3
"""Most unknown settings that an error explains one by one; of more it lists the names alone."""

RELATED: dict[str, tuple[str, str]] = {
    name: (one["method"], one["how"]) for one in _TABLES["related"] for name in one["names"]
}
"""Names of methods that the field uses -> the method here that serves the same purpose, and how."""

_TITLES = {summary.partition(":")[0].lower().replace("-", " "): name for name, summary in METHODS.items()}
"""A method's name in words -> the method."""

_NEAR_TITLE = 0.85
"""Least likeness of a name in words, as of `difflib`, which spellings of both sides of the Atlantic have."""


def canonical_settings(method: str, values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the settings of a method under their canonical names; the aliases of other trainers are translated.

    Raises:
        InvalidInput: an unknown method, a value that is not a mapping, or aliases that contradict each other.
    """
    model: type[Settings] = EvolveConfig if method == EVOLVE else _config_of(method)
    if not isinstance(values, Mapping | None):
        raise InvalidInput(f"hyperparameters: expected a mapping from settings to values, got {shown(values)}")
    fields = model.model_fields
    required = {name for name, field in fields.items() if type(None) not in get_args(field.annotation)}
    stating = _STATE_METHOD if "loss" in fields else (*_STATE_METHOD, "loss_type")  # TRL's CPO states SimPO so
    given = {
        name: value
        for name, value in (values or {}).items()
        if (name not in stating or STAGES.get(str(value), value) != method)
        and (value is not None or name not in required)  # null leaves a setting open that takes none
    }
    try:
        return canonical(given, fields)
    except InvalidInput as error:
        raise InvalidInput(f"hyperparameters: {error.message}") from None


def check_settings(method: str, settings: Mapping[str, Any]) -> TrainingConfig:
    """Validate canonical settings of a method."""
    return _validated(method, _config_of(method), settings)


def read_hyperparameters(method: str, values: Mapping[str, Any] | None) -> TrainingConfig:
    """Translate and validate hyperparameters as a caller gave them."""
    return check_settings(method, canonical_settings(method, values))


def takes_settings(method: str, values: Mapping[str, Any]) -> bool:
    """Return whether a method that nobody named takes these settings; evolve, under its own names alone: its aliases mean others too."""
    try:
        if method != EVOLVE:
            read_hyperparameters(method, values)
            return True
        check_evolution(canonical_settings(method, values))
    except InvalidInput:
        return False
    return values.keys() <= EvolveConfig.model_fields.keys()


def check_evolution(settings: Mapping[str, Any]) -> tuple[EvolveConfig, TrainingConfig]:
    """Validate canonical settings of `evolve`, and translate and validate those of its training.

    Raises:
        InvalidInput: a wrong setting; those of the training are named after `training`.
    """
    config = _validated(EVOLVE, EvolveConfig, settings)
    try:
        given = canonical_settings(config.train, config.training)
        if config.train in ONLINE_METHODS:
            _require_own(given)
        training = check_settings(config.train, given if config.explores else _playing(config, given))
    except InvalidInput as error:
        raise InvalidInput(f"in `training`: {error.message}", code=error.code) from None
    return config, training


_PLAYED = {"rollouts": "tasks_per_iteration", "group_size": "attempts"} | {
    name: name for name in ("temperature", "max_turns", "actors")
}
"""Setting of a method that can play -> the setting of the evolution that decides it."""


def _require_own(training: Mapping[str, Any]) -> None:
    """Refuse settings of a training that the evolution decides."""
    for name, decides in _PLAYED.items():
        if name in training:
            raise InvalidInput(
                f"expected no {name}, got {shown(training[name])}; set {decides} of the evolution, which decides it"
            )


def _playing(config: EvolveConfig, training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training that plays the tasks of a round itself, in rollouts of `tasks_per_step`."""
    for name in ("sampler", "self_play"):
        if training.get(name) is not None:
            raise InvalidInput(f"expected no {name}, got {shown(training[name])}; train once by ppo with it instead")
    size = training.get("tasks_per_step", PPOConfig.model_fields["tasks_per_step"].default)
    size = min(size, config.tasks_per_iteration) if isinstance(size, int) and size > 0 else size
    rollouts = math.ceil(config.tasks_per_iteration / size) if isinstance(size, int) and size > 0 else 1
    temperature, _ = config.temperatures
    return {
        **training,
        "tasks_per_step": size,
        "rollouts": rollouts,
        "group_size": config.attempts,
        "temperature": temperature,
        "max_turns": config.max_turns,
        "actors": config.actors,
    }


def _validated(method: str, model: type[S], settings: Mapping[str, Any]) -> S:
    try:
        return model.model_validate(dict(settings))
    except ValidationError as error:
        aliases = [name for name, (path, *_) in RENAMED.items() if path.split(".")[0] in model.model_fields]
        known = [*describe_settings(model), *aliases]
        found = error.errors(include_url=False, include_context=False, include_input=False)
        unknown = [fault["loc"] for fault in found if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1]
        if len(unknown) > _EXPLAINED:
            names = list_names([f"{clip(str(name))}{nearest(name, known)}" for (name,) in unknown])
            faults = f"hyperparameters: expected settings of {method}, got {len(unknown)} other names; correct or remove {names}"
            others = explain(error, "hyperparameters", known, without=unknown)
            faults += f"; {others}" if others else ""
        else:
            faults = explain(error, "hyperparameters", known)
        fields = valid_fields(error, model)  # a wrong value names its bounds alone
        place = next((fault["loc"][:-1] for fault in found if fault["type"] == "extra_forbidden"), ())
        if near := () if place else _near_in_words([str(name) for (name,) in unknown], describe_settings(model)):
            every = call("list_library", kind="methods", text=method)
            answer = Hint(f"{faults}; nearest in words: {', '.join(near)}; ", every, " explains all settings")
            raise InvalidInput(answer) from None
        raise InvalidInput(
            f"{faults}; fields of {'.'.join(map(str, place)) or method}: {fields}" if fields else faults
        ) from None


_STEM = 5
"""Letters by which forms of a word are alike, such as `stop` and `stopping`."""


def _near_in_words(unknown: Collection[str], settings: Mapping[str, str]) -> list[str]:
    """Return the three settings nearest to an unknown name, or of several names the nearest to each.

    They have at least half of its words in their own name or sentence; rare words count most.
    """
    words = {name: (_stems(name), _stems(line.partition(": ")[2])) for name, line in settings.items()}
    counts = Counter(word for named, described in words.values() for word in named | described)
    found = list[str]()
    for other in unknown:
        asked = _stems(other)
        likeness = {
            name: sum((2 * (word in named) / len(named) + (word in described)) / counts[word] for word in shared)
            for name, (named, described) in words.items()
            if (shared := asked & (named | described)) and 2 * len(shared) >= len(asked)
        }
        found += sorted(likeness, key=likeness.__getitem__, reverse=True)[: 3 if len(unknown) == 1 else 1]
    return list(dict.fromkeys(found))


def _stems(text: str) -> set[str]:
    return {word[:_STEM] for word in re.findall(r"[a-z]{3,}", text.lower())}


def merge_settings(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Override canonical settings; a change inside a group keeps the other members of the group."""
    merged = dict(settings)
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **value} if both else value
    return merged


def require_method(method: Any) -> str:
    """Return the name of a method that may be written in capitals.

    Raises:
        InvalidInput: it names no method, or is no text.
    """
    name = str(method).strip().lower()
    if not isinstance(method, str) or name not in METHODS:
        _config_of(method)
    return name


def _config_of(method: Any) -> type[TrainingConfig]:
    if isinstance(method, str) and method in CONFIGS:
        return CONFIGS[method]
    name = str(method).strip().lower().replace("-", "_").replace(" ", "_")
    near = nearest(name, METHODS)
    title = next(iter(get_close_matches(name.replace("_", " "), _TITLES, n=1, cutoff=_NEAR_TITLE)), None)
    if name in RELATED or (title is not None and not near):
        same, how = RELATED[name] if name in RELATED else (_TITLES[title or ""], title)
        near = f"; for the same purpose use {same!r} ({how})"
    raise InvalidInput(
        f"method: expected one of {', '.join(METHODS)}, got {shown(method)}{near}; list_library(kind='methods') describes each"
    )


def learning_from(kind: DatasetKind) -> list[str]:
    """Return the methods that learn from a kind of dataset, the usual one first: that of the same name, where there is one."""
    methods = [method for method, needed in DATASET_KINDS.items() if needed == kind]
    return sorted(methods, key=lambda method: method != kind)


def describe_method(method: str) -> dict[str, Any]:
    """Describe a method: what it does, its kind of dataset, and its settings from the config model."""
    return {
        "method": method,
        "summary": METHODS[method],
        "dataset_kind": DATASET_KINDS.get(method),
        "online": method == EVOLVE or method in ONLINE_METHODS,
        "hyperparameters": describe_settings(EvolveConfig if method == EVOLVE else CONFIGS[method]),
    }


@cache
def describe_methods() -> tuple[dict[str, Any], ...]:
    """Describe every method with its own settings; the first entry has the shared ones."""
    shared = describe_settings(TrainingConfig)
    summary = "Settings of every method, unless it lists its own; guide://methods/METHOD explains them."
    rows: list[dict[str, Any]] = [{"method": "*", "summary": summary, "hyperparameters": shared}]
    for about in map(describe_method, METHODS):
        settings = about["hyperparameters"].items()
        rows.append({**about, "hyperparameters": {name: line for name, line in settings if shared.get(name) != line}})
    return tuple(rows)


def list_methods(text: str | None) -> tuple[dict[str, Any], ...]:
    """List the methods, with as much of their settings as the request narrows down.

    Args:
        text: A method's name, or `*` for the shared settings: that entry alone, each setting with its sentence. Other words: entries
            that mention them, with the domains of their settings, and entries with settings that mention them, with these alone.
            None: all entries, the shared settings with their domains; null means the settings of the methods, which together are
            longer than all the rest.
    """
    rows = describe_methods()
    if text is None:
        return tuple(
            {**row, "hyperparameters": _domains(row["hyperparameters"]) if row["method"] == "*" else None}
            for row in rows
        )
    if named := [row for row in rows if row["method"] == text.strip().lower()]:
        return tuple(named)
    found = []
    for row in rows:
        lines = row["hyperparameters"]
        fitting = {name: line for name, line in lines.items() if mentions((name, line), text)}
        if mentions((row["method"], row["summary"]), text):
            found.append({**row, "hyperparameters": _domains(lines)})
        elif fitting:
            found.append({**row, "hyperparameters": fitting})
    return tuple(found)


def mentions(texts: Iterable[str], words: str) -> bool:
    """Whether texts together contain each of the words, in any case."""
    whole = " ".join(texts).casefold()
    return all(word in whole for word in words.casefold().split())


def _domains(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: line.partition(": ")[0] for name, line in settings.items()}


@cache
def describe_settings(model: type[BaseModel]) -> dict[str, str]:
    """Return setting -> type, default, bounds and description in one line; members of a group have a dotted name."""
    return dict(_lines(inline_definitions(model.model_json_schema())))


def _lines(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, field in schema["properties"].items():
        if "const" in field:
            continue
        group = next((part for part in (field, *field.get("anyOf", ())) if "properties" in part), None)
        yield prefix + name, f"{_domain(field)}: {field.get('description', '')}"
        if group is not None:
            yield from _lines(group, f"{prefix}{name}.")


def _domain(field: Mapping[str, Any]) -> str:
    """Return the domain of a setting, such as `default 0.1, 0 to 1`.

    The type is listed where the default does not show it; a group lists the types of its members.
    """
    parts = (field, *field.get("anyOf", ()))
    types = [part["type"] for part in parts if part.get("type") not in (None, "null", "object") and "enum" not in part]
    domain = [" or ".join(dict.fromkeys(types))] if types and field.get("default") is None else []
    domain.append(f"default {json.dumps(field['default'])}" if "default" in field else "required")
    for part in parts:
        low = part.get("minimum", part.get("exclusiveMinimum"))
        high = part.get("maximum", part.get("exclusiveMaximum"))
        if low is not None and high is not None:
            above, below = "above " * ("exclusiveMinimum" in part), "below " * ("exclusiveMaximum" in part)
            domain.append(f"{above}{low} to {below}{high}")
        if "enum" in part:
            domain.append(" | ".join(map(str, part["enum"])))
    return ", ".join(domain)


def inline_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline the `$defs` of a JSON schema, so that each field is complete.

    Keys beside a reference, such as its description, override those of the definition.
    """
    definitions = schema.get("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                beside = {key: inner for key, inner in value.items() if key != "$ref"}
                return {**resolve(definitions[re.sub(r".*/", "", value["$ref"])]), **resolve(beside)}
            return {key: resolve(inner) for key, inner in value.items() if key != "$defs"}
        if isinstance(value, list):
            return [resolve(inner) for inner in value]
        return value

    resolved: dict[str, Any] = resolve(schema)
    return resolved
