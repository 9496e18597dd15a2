"""Scorers of other people: functions that a program registers, and what installed packages announce as entry points.

Only the operator installs and only trusted local callers register; no tool takes code. Their faults cost one score, never a run.
"""

from __future__ import annotations

import importlib
import logging
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, SupportsFloat, cast

from pydantic import ValidationError

from quintain.checkers.answers import expected_answer
from quintain.errors import Unavailable
from quintain.extensions import load_object, package_of
from quintain.records.protocols import Scorer
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.records.wording import explain
from quintain.scoring.outcomes.final_message import final_messages
from quintain.scoring.outcomes.whole_run_scores import scored, unscored

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., Any]
"""From a trajectory to a score in 0..1, higher is better; None: it cannot be scored. Or a reward function of TRL, from lists by the
names `completions`, `prompts`, `ground_truth` and `answer` to a list of scores."""


class _Faults:
    """Log the first fault of a scorer; each score contains its own reason."""

    def __init__(self) -> None:
        self._told = False

    def log_first(self, what: str, name: str, error: Exception) -> None:
        """Log a fault with its traceback, unless one was logged before."""
        if not self._told:
            logger.warning("%s %r failed; further failures of it are not logged", what, name, exc_info=error)
        self._told = True


def _raised(name: str, error: Exception) -> str:
    cause = explain(error, error.title) if isinstance(error, ValidationError) else str(error)[:500]
    return f"{name} raised {type(error).__name__}: {cause}"


@dataclass
class FunctionScorer:
    """Scores with a function; an exception, or a value outside 0..1, becomes a reason and never a number."""

    name: str
    function: RewardFunction
    faults: _Faults = field(default_factory=_Faults)

    def score(self, trajectory: Trajectory) -> Score:
        """The function's verdict on the trajectory."""
        try:
            value = _value(self.function, trajectory)
            reason = None if value is not None else f"{self.name} gave no score"
            number = float(value) if isinstance(value, SupportsFloat) else math.nan  # also of NumPy and torch
            if value is not None and not 0 <= number <= 1:
                value, reason = None, f"{self.name} gave {value!r:.60}; a score must be a number in 0..1"
        except Exception as error:  # other people's code: its fault costs one score
            self.faults.log_first("the reward function", self.name, error)
            value, reason = None, _raised(self.name, error)
        return unscored(trajectory, self.name, reason or "") if value is None else scored(trajectory, self.name, number)


def _value(function: RewardFunction, run: Trajectory) -> Any:
    """Return what a function gives for a run; one with a parameter `completions` is called as TRL does, with lists of one."""
    parameters = signature(function).parameters
    if "completions" not in parameters:
        return function(run)
    expected = expected_answer(run.task)
    texts = {"completions": next(final_messages(run), ""), "prompts": run.task.prompt or run.first_user_text}
    lists = {name: [text] for name, text in {**texts, "ground_truth": expected, "answer": expected}.items()}
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    (value,) = function(**{name: one for name, one in lists.items() if takes_all or name in parameters})
    return value


def function_reference(function: RewardFunction) -> str | None:
    """Return MODULE:QUALNAME of a function that another process can import; None for others, such as lambdas."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is function else None


def module_folder(function: RewardFunction) -> str | None:
    """Return the folder in which Python finds the top-level module or package of a function; None: it is in no file."""
    module = getattr(function, "__module__", None) or ""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    return str(path.parents[module.count(".") + (path.stem == "__init__")])


def import_function(reference: str, folder: str | None = None) -> RewardFunction:
    """Import a function by `function_reference`, from a folder where its module is in no installed package.

    Raises:
        Unavailable: Its module cannot be imported, or has no such function.
    """
    module, _, name = reference.partition(":")
    if folder is not None and folder not in sys.path:
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # other people's code runs when it is imported
        raise Unavailable(
            f"the reward function {reference!r} cannot be imported ({type(error).__name__}: {error}); "
            + ("install its package" if folder is None else f"put its module back into {folder}"),
            code="scorer_broken",
        ) from error
    if not callable(found):
        raise Unavailable(
            f"expected a reward function at {reference!r}, got {type(found).__name__}; restore the function"
        )
    return cast(RewardFunction, found)


GROUP = "quintain.scorers"
"""Entry-point group; each entry names a function from a trajectory to a score in 0..1 (None: cannot be scored), or a class
without constructor arguments, or an instance, that is a `Scorer`."""


@dataclass
class InstalledScorer:
    """A scorer of an installed package, under the name of its entry point."""

    name: str
    inner: Scorer
    faults: _Faults = field(default_factory=_Faults)

    def score(self, trajectory: Trajectory) -> Score:
        """Return its verdict; an exception, or a result that is not a score of this run, becomes a reason."""
        run = trajectory.identified()
        try:
            verdict: Any = self.inner.score(run)
        except Exception as error:  # other people's code: its fault costs one score
            self.faults.log_first("the installed scorer", self.name, error)
            return unscored(run, self.name, _raised(self.name, error))
        if not isinstance(verdict, Score) or verdict.trajectory_id != run.id:
            what = f"the score of {verdict.trajectory_id!r}" if isinstance(verdict, Score) else type(verdict).__name__
            return unscored(
                run, self.name, f"{self.name} gave {what}; it must give a Score of the run that it was asked about"
            )
        return verdict.model_copy(update={"scorer": self.name})


def load(entry: EntryPoint) -> Scorer:
    """The scorer of an entry point.

    Raises:
        Unavailable: its package cannot be imported, or its entry point is not a scorer.
    """
    target = load_object(entry, ())
    if callable(getattr(target, "score", None)):
        return InstalledScorer(entry.name, target)
    if callable(target):
        return FunctionScorer(entry.name, target)
    raise Unavailable(
        f"expected a scorer or a function at {entry.name} = {entry.value} of package {package_of(entry)} ({GROUP}), got "
        f"{type(target).__name__}; repair the package",
        code="extension_broken",
    )
