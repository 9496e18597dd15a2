"""Scorers by name: built in, presets, installed by the operator, registered by a program, and those read from the store."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from quintain.checkers.check import CHECKS
from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable
from quintain.extensions import ExtensionGroup, package_of
from quintain.records.labels.profiles import DomainProfile
from quintain.records.labels.reward import Combine, Declared
from quintain.records.protocols import Scorer
from quintain.records.score import Score
from quintain.records.wording import nearest, shown
from quintain.scoring.calibration.calibrated import RawScorer
from quintain.scoring.custom import GROUP, FunctionScorer, RewardFunction, load
from quintain.scoring.declared import DEFAULTS, DeclaredScorer
from quintain.scoring.mix import MixScorer, WeightedScorer
from quintain.scoring.outcomes.answer_scorers import CheckerScorer, OutcomeScorer, TextScorer
from quintain.scoring.outcomes.unit_tests import OpenSandbox, UnitTestScorer
from quintain.scoring.presets import PRESETS
from quintain.scoring.recorded import AGENT, RAW, RecordedScorer, is_recorded
from quintain.scoring.rules.scorer import RulesScorer

Recorded = Mapping[str, Mapping[str, "list[Score]"]]
"""Scorer -> trajectory id -> its stored scores, newest first."""

_SENTENCES = tomllib.loads(Path(__file__).with_name("scorers.toml").read_text(encoding="utf-8"))
_ABOUT: Mapping[str, str] = _SENTENCES["built_in"]
EXTENSIONS = ExtensionGroup(GROUP, frozenset(_ABOUT))
_DECLARED_ONLY: Mapping[str, str] = _SENTENCES["declared"]
"""Scorers that need settings, and therefore have no name alone."""
_REGISTERED: dict[str, Callable[[], Scorer]] = {}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ScorerDescription(NamedTuple):
    """A scorer as the library shows it."""

    name: str
    about: str
    source: str
    """`built in`, `declared` (needs settings), `installed by PACKAGE`, `registered`."""
    broken: str | None = None
    """Why it cannot be used."""


def register(name: str, function: RewardFunction) -> None:
    """Make a function a scorer of this process, under a new name, or in place of a scorer with declared bounds.

    Raises:
        InvalidInput: a name that cannot be one, or something that cannot be called.
        Conflict: a built-in or installed scorer has the name.
    """
    if not callable(function):
        raise InvalidInput(f"expected the reward function {name!r} to be callable, got {type(function).__name__}")
    register_scorer(name, lambda: FunctionScorer(name, function))


def register_by_name(function: RewardFunction) -> str:
    """Make a function a scorer under its own name, which is returned; errors as of `register`."""
    name = str(getattr(function, "__name__", "reward_fn")).strip("<>")
    register(name, function)
    return name


def register_scorer(name: str, make: Callable[[], Scorer]) -> None:
    """Make what `make` gives a scorer of this process; errors as of `register`."""
    if not is_scorer_name(name):
        raise InvalidInput(f"scorer name {shown(name)} must be letters, digits, '.', '_' or '-', at most 100 of them")
    if (name in _ABOUT and name not in DEFAULTS) or name in EXTENSIONS.installed().entries:
        raise Conflict(
            f"{name!r} is {'a built-in' if name in _ABOUT else 'an installed'} scorer; give yours another name"
        )
    _REGISTERED[name] = make


def is_scorer_name(name: object) -> bool:
    """Whether a program may register a scorer under this name."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def registered_declared(name: str) -> Declared | None:
    """Return the declared scorer that a program registered under a name; None for another kind of scorer."""
    registered = _REGISTERED[name]() if name in _REGISTERED else None
    return registered.declared if isinstance(registered, DeclaredScorer) else None


def registered_function(name: str) -> RewardFunction | None:
    """Return the function that a program registered under a name; None for another kind of scorer."""
    scorer = _REGISTERED[name]() if name in _REGISTERED else None
    return scorer.function if isinstance(scorer, FunctionScorer) else None


def is_registered(name: str) -> bool:
    """Whether this is a scorer of this process alone."""
    return name in _REGISTERED


def scorer_names() -> list[str]:
    """The names that `scorer` knows, sorted; trained models (`agent:NAME`) come on top of these."""
    return sorted({*_ABOUT, *EXTENSIONS.installed().entries, *_REGISTERED})


def describe_scorers() -> list[ScorerDescription]:
    """Every scorer in a line, the broken ones with the reason."""
    found, installed = [], EXTENSIONS.installed()
    for name in scorer_names():
        if name in _ABOUT and name not in _REGISTERED:
            found.append(ScorerDescription(name, _ABOUT[name], "built in"))
        elif name in _REGISTERED:
            found.append(ScorerDescription(name, "a function of this program", "registered"))
        else:
            entry = installed.entries[name]
            broken = None
            try:
                load(entry)
            except Unavailable as error:
                broken = error.message
            found.append(
                ScorerDescription(name, f"announced as {entry.value}", f"installed by {package_of(entry)}", broken)
            )
    found += [
        ScorerDescription(name, "announced, not used", "installed", reason)
        for name, reason in installed.refused.items()
    ]
    pattern = ScorerDescription(
        "regex", "a pattern of yours: {type: regex, pattern, flags, full, absent, of}", "declared"
    )
    return [*found, *(ScorerDescription(name, about, "declared") for name, about in _DECLARED_ONLY.items()), pattern]


PROFILED = (RulesScorer.name, *PRESETS)
"""Scorers that take a domain profile; with a named one, their names in a mix state it."""


def recorded_names(spec: str | Mapping[str, float]) -> tuple[str, ...]:
    """The scorers of a spec whose scores are read from the store: `judge`, `people`, `montecarlo`, `replay` and `agent:...`."""
    names = [spec] if isinstance(spec, str) else list(spec)
    return tuple(name for name in names if isinstance(name, str) and is_recorded(name))


def scorer(
    spec: str | Mapping[str, float],
    *,
    profile: DomainProfile | None = None,
    recorded: Recorded | None = None,
    open_sandbox: OpenSandbox | None = None,
    combine: Combine = "mean",
    around: Callable[[Scorer], Scorer] | None = None,
    own: Mapping[str, Scorer] | None = None,
    identities: Mapping[str, str] | None = None,
) -> Scorer:
    """The scorer of a name, or the weighted mix of several, such as `{"outcome": 0.4, "rules": 0.6}`.

    Args:
        spec: A name, or names and weights.
        profile: The runs' domain, for scorers that look at tools; None: the one that fits each run.
        recorded: Stored scores of `recorded_names(spec)`; None: there are none.
        open_sandbox: Where unit tests run; None: nowhere, they stay unscored.
        combine: How the parts of a mix become one value.
        around: Wraps each part, for example in its calibration.
        own: Scorers of the caller by name, such as declared ones; they go before all others.
        identities: Names of parts in the name of a mix, where their own names leave out settings.

    Raises:
        NotFound: a name that is not known; lists those that are.
        InvalidInput: an empty mix, or as of `MixScorer`: a weight below 0, or a lower bound or product of a single scorer.
        Unavailable: an installed scorer is broken.
    """

    def part(name: str, weight: float = 1.0) -> WeightedScorer:
        known = own.get(name) if own else None
        inner = known or _named(name, profile, recorded or {}, open_sandbox)
        identity = inner.declared.identity if isinstance(inner, DeclaredScorer) else (identities or {}).get(name)
        return WeightedScorer(around(inner) if around else inner, weight, identity)

    if isinstance(spec, str):
        if combine != "mean":
            raise InvalidInput(
                f"`combine={combine!r}` needs a mix of at least two scorers, such as {{'outcome': 1, 'length': 1}}; {shown(spec)} is one"
            )
        return part(spec).scorer
    if not isinstance(spec, Mapping) or not spec:
        raise InvalidInput(f"expected scorer to be a name or a mix of names and weights, got {shown(spec)}; {_known()}")
    return MixScorer([part(name, weight) for name, weight in spec.items()], combine)


def _named(name: str, profile: DomainProfile | None, recorded: Recorded, open_sandbox: OpenSandbox | None) -> Scorer:
    if name == OutcomeScorer.name:
        return OutcomeScorer()
    if name in CHECKS:
        return TextScorer(name)
    if name == RulesScorer.name:
        return RulesScorer(profile)
    if name == UnitTestScorer.name:
        return UnitTestScorer(open_sandbox)
    if name == CheckerScorer.name:
        return CheckerScorer(open_sandbox)
    if name in PRESETS:
        return PRESETS[name](profile)
    if is_recorded(name) and name != AGENT:
        return RecordedScorer(name, recorded.get(name, {}))
    if name.startswith(RAW):
        return RawScorer(_named(name.removeprefix(RAW), profile, recorded, open_sandbox))
    if (entry := EXTENSIONS.find(name)) is not None:
        return load(entry)
    if name in _REGISTERED:
        return _REGISTERED[name]()
    if name in DEFAULTS:
        return DeclaredScorer(DEFAULTS[name])
    if name in _DECLARED_ONLY:
        raise InvalidInput(f"{name} needs settings: {_DECLARED_ONLY[name].partition(': ')[2]}; declare it with them")
    raise NotFound(f"expected a scorer, got {shown(name)}{nearest(name, scorer_names())}; {_known()}")


def _known() -> str:
    mixes = "a mix such as {'outcome': 0.5, 'rules': 0.5}, with a declared part {'parts': {'NAME': {'type': ..., 'weight': 0.5}}}"
    return f"known scorers: {', '.join(scorer_names())}, agent:NAME; or {mixes}"
