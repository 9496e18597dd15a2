"""Domain profiles: the built-in ones, those in users' files, the choice for a run, and how far it got by their outcome fields."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.documents import read_document
from quintain.records.labels.profiles import DomainProfile, OutcomeRule, ToolProfile
from quintain.records.protocols import tool_function
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.records.wording import explain, nearest, shown


def _built_in() -> dict[str, DomainProfile]:
    document = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    tools = {key: {"name": key, **tool} for key, tool in document["tools"].items()}
    return {
        name: DomainProfile.model_validate({**fields, "name": name, "tools": [tools[key] for key in fields["tools"]]})
        for name, fields in document["profiles"].items()
    }


GENERIC = "generic"
"""The profile of a run that no other one fits: it knows `submit` and `think`, and what the run describes."""

PROFILES: Mapping[str, DomainProfile] = MappingProxyType(_built_in())

_TYPES = {
    **dict.fromkeys(("bug_fix", "bugfix", "swe", "swe-bench", "swebench", "software_engineering", "code"), "coding"),
    **dict.fromkeys(("web", "web_navigation", "webarena", "webshop", "miniwob", "mind2web"), "browser"),
    **dict.fromkeys(("chat", "dialogue", "customer_service", "airline", "retail", "telecom"), "conversation"),
}
"""Other words for a domain, as tasks and environments use them."""

_COMMON = frozenset({"bash", "web_search"})
"""Tools of many domains, which do not show which one it is."""


def profile(name_or_path: str) -> DomainProfile:
    """A built-in profile by name, or the one in a JSON or YAML file.

    A file with `"extends": "coding"` changes only the fields that it gives; its tools take precedence.

    Raises:
        NotFound: neither a name nor a file; lists the names.
        InvalidInput: the file is not a profile; names the field.
    """
    if name_or_path in PROFILES:
        return PROFILES[name_or_path]
    if Path(name_or_path).suffix.lower() not in {".json", ".yaml", ".yml"}:
        near = nearest(name_or_path, PROFILES)
        raise NotFound(
            f"no profile {shown(name_or_path)}{near}; built in: {', '.join(sorted(PROFILES))}; or name a JSON file of your own",
            code="profile_not_found",
        )
    document = read_document(Path(name_or_path))
    extended = document.pop("extends", None)
    if extended is not None:
        if not isinstance(extended, str) or extended not in PROFILES:
            raise InvalidInput(
                f"expected profile.extends to be one of {', '.join(sorted(PROFILES))}, got {shown(extended)}",
                code="bad_config",
            )
        parent = PROFILES[extended]
        if isinstance(document.get("rules"), dict):
            document["rules"] = parent.rules | document["rules"]
        document = parent.model_dump(exclude={"tools", "description"}) | document
    try:
        own = DomainProfile.model_validate(document)
    except ValidationError as error:
        raise InvalidInput(
            f"cannot read the profile in {name_or_path}: {explain(error, 'profile', DomainProfile.model_fields)}",
            code="bad_config",
        ) from None
    if extended is None:
        return own
    return own.model_copy(update={"tools": _over(own.tools, PROFILES[extended].tools)})


def _over(own: tuple[ToolProfile, ...], extended: tuple[ToolProfile, ...]) -> tuple[ToolProfile, ...]:
    """One's own tools, and those of the extended profile under the names that are left to them."""
    taken = {name.casefold() for tool in own for name in (tool.name, *tool.aliases)}
    kept = []
    for tool in extended:
        names = [name for name in (tool.name, *tool.aliases) if name.casefold() not in taken]
        if names:
            kept.append(tool.model_copy(update={"name": names[0], "aliases": tuple(names[1:])}))
    return own + tuple(kept)


def profile_for(run: Trajectory) -> DomainProfile:
    """Return the profile of a run: by `metadata.domain`, environment or task type, else by its tools, else `generic`."""
    task = run.task
    for field in (task.metadata.get("domain"), task.environment, task.type):
        if isinstance(field, str) and (name := _domain(field)):
            return PROFILES[name]
    called = {tool.casefold() for step in run.steps for action in step.actions if (tool := bare_name(action.tool))}
    called -= _NAMES[GENERIC]
    return PROFILES[_by_tools(called - _COMMON) or _by_tools(called) or GENERIC]


def domain_of(run: Trajectory) -> str:
    """The name of the run's profile: runs of one domain are calibrated together."""
    return profile_for(run).name


def bare_name(tool: str) -> str:
    """A tool's name without the server or namespace that offers it: `mcp__github__get_issue` is `get_issue`."""
    name = tool.rsplit("__", 1)[-1]
    return name.rsplit(".", 1)[-1] or name or tool


def tool_functions(run: Trajectory) -> list[dict[str, Any]]:
    """Return the functions that the tools of a run define, without their envelopes."""
    return [tool_function(tool) for tool in run.tools]


def text_tools(run: Trajectory) -> frozenset[str]:
    """Return the tools of a run whose arguments are free text instead of an object, according to their schema."""
    schemas = {str(function.get("name")): function.get("parameters") for function in tool_functions(run)}
    return frozenset(
        name for name, schema in schemas.items() if isinstance(schema, dict) and schema.get("type") == "string"
    )


def _domain(field: str) -> str | None:
    """`knowlyr/coding`, `coding` and `bug_fix` are coding."""
    word = field.casefold()
    if word in _BY_ENVIRONMENT:
        return _BY_ENVIRONMENT[word]
    last = word.rsplit("/", 1)[-1]
    if last in PROFILES:
        return last if last != GENERIC else None
    return _TYPES.get(last)


_BY_ENVIRONMENT = {"quintain/inventory": "inventory", "quintain/sandbox": "coding"}

_NAMES = {
    profile.name: frozenset(name.casefold() for tool in profile.tools for name in (tool.name, *tool.aliases))
    for profile in PROFILES.values()
    if profile.name != "inventory"
}


def _by_tools(called: set[str]) -> str | None:
    """The profile that knows most of the tools, and at least half of them; the first of equals."""
    if not called:
        return None
    best = max(_NAMES, key=lambda name: len(called & _NAMES[name]))
    return best if 2 * len(called & _NAMES[best]) >= len(called) else None


class Credit(NamedTuple):
    """The known outcome of a run."""

    success: bool | None
    """None: unknown."""
    share: float | None
    """Reached share of the total, 0..1; None where the outcome lacks the fields."""
    description: str


def credit_of(run: Trajectory, rule: OutcomeRule) -> Credit:
    """Return the recorded verdict; without one, a share of 1 is success and less is failure.

    An errored run has no verdict, since the agent did not cause the error. A truncated run did not succeed.
    """
    status = run.outcome.status
    share = _share(run.outcome.scores, rule)
    reached = "" if share is None else f", {share:.0%} reached"
    if status is OutcomeStatus.ERROR or (status is OutcomeStatus.UNKNOWN and share is None):
        return Credit(None, None, f"the outcome is {status.value}, which is not a verdict")
    success = share == 1.0 if status is OutcomeStatus.UNKNOWN else status is OutcomeStatus.SUCCESS
    return Credit(success, share, f"The outcome is {status.value}{reached}.")


def unknown_outcome(why: str) -> Hint:
    """Return why a run without a verdict is unscored, and what to do about it."""
    by_rules = call("score_trajectories", scorer="rules", filter=...)
    return Hint(f"{why}; score the run by rules alone: ", by_rules, ", or let its outcome be judged first")


def _share(scores: dict[str, float], rule: OutcomeRule) -> float | None:
    if rule.partial_credit in scores:
        return min(1.0, max(0.0, scores[rule.partial_credit]))
    score = scores.get(rule.score) if rule.score else None
    total = scores.get(rule.total) if rule.total else None
    if score is None or total is None or total <= 0:
        return None
    return min(1.0, max(0.0, score / total))
