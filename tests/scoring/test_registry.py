"""Scorers by name: built in, read from the store, registered, and installed by other packages."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from quintain import extensions
from quintain.errors import Conflict, InvalidInput, NotFound, Unavailable
from quintain.records.score import Component, Score, StepScore
from quintain.records.trajectory import Trajectory
from quintain.scoring import custom, registry
from quintain.scoring.recorded import RecordedScorer
from quintain.scoring.registry import describe_scorers, recorded_names, register, scorer, scorer_names
from trajectory_runs import run

RUN = run().identified()


class Half:
    """An installed scorer."""

    name = "its-own-name"

    def score(self, trajectory: Trajectory) -> Score:
        part = Component(name="x", weight=1.0, value=0.5)
        return Score(trajectory_id=trajectory.id or "", scorer="x", status="scored", value=0.5, components=(part,))


def share(trajectory: Trajectory) -> float:
    return 0.25


class Failing:
    name = "failing"

    def score(self, trajectory: Trajectory) -> Any:
        raise RuntimeError("no luck")


class Lying:
    name = "lying"

    def score(self, trajectory: Trajectory) -> Any:
        return 0.9


class Careless:
    name = "careless"

    def score(self, trajectory: Trajectory) -> Any:
        return Score.model_validate({"value": 0.5})


class Exploding:
    def __init__(self) -> None:
        raise RuntimeError("at birth")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    here = "scoring.test_registry"
    entries = {"half": f"{here}:Half", "share": f"{here}:share", "failing": f"{here}:Failing", "lying": f"{here}:Lying"}
    entries["careless"] = f"{here}:Careless"
    broken = {
        "gone": "no_such_package:Scorer",
        "exploding": f"{here}:Exploding",
        "number": f"{here}:RUN",
        "rules": f"{here}:Half",
    }
    found = [EntryPoint(name, value, custom.GROUP) for name, value in (entries | broken).items()]
    monkeypatch.setattr(extensions, "entry_points", lambda group: found)
    extensions.extensions_of.cache_clear()
    yield
    extensions.extensions_of.cache_clear()


def test_every_built_in_name_has_a_scorer_of_that_name_and_a_line_of_text() -> None:
    built_in = [described for described in describe_scorers() if described.source == "built in"]
    names = [described.name for described in built_in]
    assert names == [
        *("answer", "calls", "checker", "composite", "helloagents", "influence", "json", "judge", "knowlyr", "length"),
        *("montecarlo", "outcome", "people", "regex", "replay", "rules", "sage", "steps", "tournament", "unit_tests"),
    ]
    assert [scorer(name).name for name in names] == names
    assert all(described.about and described.broken is None for described in built_in)


def test_names_are_told_with_the_near_the_known_and_those_read_from_the_store() -> None:
    for unknown in ("outcom", {"outcome": 1, "outcom": 1}):
        with pytest.raises(NotFound, match=r"did you mean 'outcome'.*known scorers: answer, calls, checker"):
            scorer(unknown)

    assert recorded_names({"judge": 1, "agent:rm@1": 1, "rules": 1, "people": 0}) == ("judge", "agent:rm@1", "people")
    assert recorded_names("outcome") == ()


def test_installed_scorers_are_found_and_a_broken_one_harms_no_other(installed: None) -> None:
    assert {"half", "share", "failing", "lying", "gone"} <= set(scorer_names())
    half, part = scorer("half").score(RUN), scorer("share").score(RUN)
    assert (half.scorer, half.value, part.value) == ("half", 0.5, 0.25)
    assert scorer({"half": 1, "share": 1}).score(RUN).value == pytest.approx(0.375)
    assert scorer("failing").score(RUN).reason == "failing raised RuntimeError: no luck"
    careless = scorer("careless").score(RUN).reason or ""
    assert careless.startswith("careless raised ValidationError: Score.trajectory_id is required; Score.scorer is")
    assert "must give a Score" in (scorer("lying").score(RUN).reason or "")
    for name in ("gone", "exploding", "number"):
        with pytest.raises(Unavailable, match=f"{name}.*repair"):
            scorer(name)
    described = {one.name: one for one in describe_scorers()}
    assert [name for name, one in described.items() if one.broken] == ["exploding", "gone", "number", "rules"]
    assert type(scorer("rules")).__name__ == "RulesScorer"


def test_a_registered_function_is_a_scorer_and_no_name_is_taken_twice(
    installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    register("mine", lambda trajectory: 0.7)
    assert scorer("mine").score(RUN).value == 0.7
    register("mine", lambda trajectory: np.float32(0.25))
    assert scorer("mine").score(RUN).value == 0.25
    register("mine", lambda prompts, completions: np.array([0.5]))
    assert scorer("mine").score(RUN).value == 0.5
    for wrong in (2, float("nan"), "much", None):
        register("mine", lambda trajectory, wrong=wrong: wrong)
        assert scorer("mine").score(RUN).value is None
    for name, error in (("rules", Conflict), ("half", Conflict), ("a b", InvalidInput)):
        with pytest.raises(error):
            register(name, lambda trajectory: 1.0)
    with pytest.raises(InvalidInput, match="to be callable, got int"):
        register("other", 3)  # type: ignore[arg-type]


def verdict(value: float | None, rater: str | None, **fields: Any) -> Score:
    result = {"reason": "the answer was prose"} if value is None else {}
    status = "scored" if value is not None else "unscored"
    return Score(
        trajectory_id=RUN.id or "", scorer="judge", status=status, value=value, rater=rater, **result, **fields
    )


def test_stored_verdicts_count_once_a_rater_and_a_run_without_one_is_unscored() -> None:
    """assistant 0.8 (its newer one failed, its older one is out), endpoint raw 0.4: mean 0.6; steps 1 and 0: 0.5."""
    found = [
        verdict(0.1, None, raw=0.2, calibration="cal-1"),
        verdict(None, "assistant"),
        verdict(0.8, "assistant", steps=(StepScore(step=0, value=1.0),)),
        verdict(0.2, "assistant"),
        verdict(0.9, "endpoint:a", raw=0.4, calibration="cal-1", steps=(StepScore(step=0, value=0.0),)),
    ]
    score = RecordedScorer("judge", {RUN.id or "": found}).score(RUN)
    assert score.value == pytest.approx(0.6)
    assert [step.value for step in score.steps] == [0.5]
    assert score.feedback.startswith("2 raters, from 0.40 to 0.80")

    assert "no verdict is stored; judge it (get_judging_batch" in (scorer("judge").score(RUN).reason or "")
    failed = scorer("judge", recorded={"judge": {RUN.id or "": [verdict(None, "assistant")]}}).score(RUN)
    assert (failed.status, failed.value) == ("unscored", None)
    assert "the answer was prose" in (failed.reason or "")
