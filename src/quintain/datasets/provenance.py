"""Source models of a dataset, and restrictions in their terms of use.

Only vendors whose published terms plainly restrict it are listed; open-weight models of the same vendors (gpt-oss,
Gemma, Grok-1) are not. A model that is not listed may still have a restrictive licence. None of this is legal advice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from quintain.errors import Refused
from quintain.records.trajectory import Step, Trajectory

Terms = Literal["warn", "allow", "block"]
"""Policy for outputs of models whose terms restrict training."""

UNKNOWN = "unknown"
"""Name of a model that the log does not state."""

RESTRICTED = "restricted"
"""Pattern for every model whose terms restrict training on its outputs."""


class _Vendor(NamedTuple):
    name: str
    product: str
    forbids: str
    models: re.Pattern[str]
    """Matches the beginning of a plain model name."""


_END = r"(?![a-z0-9])"
_VENDORS = (
    _Vendor("Anthropic", "Claude", "training models that compete with it", re.compile(rf"claude(?:{_END}|[-_.]?\d)")),
    _Vendor(
        "OpenAI",
        "GPT",
        "developing models that compete with it",
        re.compile(
            rf"(?:chatgpt|gpt-?(?:[4-9]|3\.?5|35|3)(?!all)|o[1-9](?:-(?:mini|pro|preview|high|medium|low|deep-research|\d{{4}})|{_END}(?!-))"
            rf"|codex{_END}|computer-use-preview|(?:text-|code-)?davinci-\d)"
        ),
    ),
    _Vendor(
        "Google",
        "Gemini",
        "developing models that compete with its services",
        re.compile(rf"(?:gemini{_END}|(?:text|chat|code|codechat)-(?:bison|unicorn))"),
    ),
    _Vendor(
        "xAI",
        "Grok",
        "developing models that compete with it",
        re.compile(rf"grok(?!-?1{_END}(?!\.)){_END}|grok-?[2-9]"),
    ),
)
_DERIVED = re.compile(r"alpaca|vicuna|llama|qwen|mistral|hermes|gemma|distill|gguf|lora|awq|gptq")
"""Name parts of open models trained on outputs of others, such as `claude2-alpaca-13b`."""
_ROUTE = re.compile(
    r"(?:[a-z]{2,6}(?:-[a-z]{2,6})?\.)?(?:anthropic|openai|google|xai)\.|(?:anthropic|openai|google|xai|google_genai|ft|azure):"
)


def plain_name(model: str) -> str:
    """Return a model name in lower case without its route: `claude-sonnet-4-5` for `us.anthropic.claude-sonnet-4-5`."""
    last = model.strip().lower().rstrip("/").rsplit("/", 1)[-1]
    return _ROUTE.sub("", last, count=1) if _ROUTE.match(last) else last


def find_restriction(model: str | None) -> str | None:
    """Return a sentence on the terms of a model that restrict training on its outputs; None for other models."""
    name = plain_name(model or "")
    if _DERIVED.search(name):
        return None
    for vendor in _VENDORS:
        if vendor.models.match(name):
            return (
                f"{vendor.name}'s terms restrict using outputs of {vendor.product} for {vendor.forbids}: read them before "
                "you train on these runs or share the dataset."
            )
    return None


def check_terms(source_models: Mapping[str, int], policy: Terms) -> tuple[str, ...]:
    """Apply the operator's policy to the models that wrote a dataset.

    Args:
        source_models: Model -> agent steps that it wrote.
        policy: `Settings.model_terms`.

    Returns:
        One warning for each vendor concerned, with its models and steps; under `allow` none.

    Raises:
        Refused: the policy is `block` and the terms of one of the models restrict training.
    """
    if policy == "allow":
        return ()
    models: dict[str, list[str]] = {}
    for model in sorted(source_models):
        if restriction := find_restriction(model):
            models.setdefault(restriction, []).append(model)
    if models and policy == "block":
        blocked = [model for concerned in models.values() for model in concerned]
        names = ", ".join(blocked)
        globs = ", ".join(f'"!{name}"' for name in dict.fromkeys(map(plain_name, blocked)))
        raise Refused(
            f"the dataset contains steps of models whose terms restrict training on their outputs: {names}; leave all such runs out "
            f'with `curation={{"source_models": ["!{RESTRICTED}"]}}`, or name their models ({globs}), or let the operator set '
            "QUINTAIN_MODEL_TERMS to 'warn' or 'allow'",
            code="model_terms",
        )
    warnings = []
    for restriction, concerned in models.items():
        steps = sum(source_models[model] for model in concerned)
        wrote = f"{', '.join(concerned)} wrote {steps:,} {'step' if steps == 1 else 'steps'} of it"
        warnings.append(f"{restriction} ({wrote}.)")
    return tuple(warnings)


def written_by(step: Step, run: Trajectory) -> str:
    """Return the model of a step: the step's own, else the agent's, else `unknown`."""
    return step.model or run.agent.model or UNKNOWN


def allowed_models(run: Trajectory, patterns: Sequence[str]) -> bool:
    """Whether every trainable step of a run was written by a model that the patterns allow.

    Args:
        run: Any run.
        patterns: Globs, case ignored, against the name as logged and the plain name (`claude-*` covers
            `anthropic/claude-sonnet-4-5`); `restricted` is every model whose terms restrict training; one with `!`
            before it excludes. With exclusions alone all others are allowed.
    """
    models = {written_by(step, run) for step in run.agent_steps if not step.is_masked}
    return all(_is_named(model, patterns) for model in models)


def _is_named(model: str, patterns: Sequence[str]) -> bool:
    names = (model.lower(), plain_name(model))
    wanted = [pattern.lower() for pattern in patterns if not pattern.startswith("!")]
    unwanted = [pattern[1:].lower() for pattern in patterns if pattern.startswith("!")]
    if any(_matches(names, pattern) for pattern in unwanted):
        return False
    return not wanted or any(_matches(names, pattern) for pattern in wanted)


def _matches(names: tuple[str, ...], pattern: str) -> bool:
    if pattern == RESTRICTED:
        return find_restriction(names[0]) is not None
    return any(fnmatchcase(name, pattern) for name in names)
