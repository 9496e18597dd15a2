"""Composite scores: ours orders built runs by merit, and those of others mean what they say."""

from __future__ import annotations

import math
from typing import Any

import pytest
from benchmarks.rewards.known_order import DOMAINS, cases, pairs
from benchmarks.rewards.ranking import misordered

from quintain.records.labels.profiles import DomainProfile
from quintain.records.score import Score
from quintain.records.trajectory import Outcome, OutcomeStatus, Step, Task, Trajectory
from quintain.scoring.presets import PRESETS
from quintain.scoring.profiles import profile
from trajectory_runs import answer, call, run, user


def _run(
    *steps: Step, status: OutcomeStatus = OutcomeStatus.SUCCESS, prompt: str = "Mend it.", **metadata: Any
) -> Trajectory:
    task = Task(id="t", prompt=prompt, type="coding", metadata=metadata)
    return run("t", user(), *steps, status=status, tools=(), task=task)


def _reads(n: int) -> tuple[Step, ...]:
    return tuple(call("read_file", f"content of {i}", path=f"{i}.py") for i in range(n))


def _parts(score: Score) -> dict[str, float | None]:
    return {part.name: part.value for part in score.components}


def _scored(run_: Trajectory, outcome: Outcome) -> Trajectory:
    return run_.model_copy(update={"outcome": outcome})


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_composite_orders_runs_of_known_merit(domain: str) -> None:
    scorer = PRESETS["composite"]()
    values = {name: scorer.score(case).value for name, case in cases(domain).items()}
    assert misordered(values) == []
    assert all(better - worse > 0.02 for better, worse in ((values[a], values[b]) for a, b in pairs()))  # type: ignore[operator]


def test_the_composite_is_the_weighted_mean_of_what_is_known() -> None:
    """Success 1, process 1, efficiency 2/4: 0.6 + 0.3 + 0.1 x 0.5. Without a reference: (0.6 + 0.3)/0.9."""
    score = PRESETS["composite"]().score(_run(*_reads(4), reference_steps=2))
    assert score.value == pytest.approx(0.95)
    assert _parts(score) == {"outcome": 1.0, "process": 1.0, "efficiency": 0.5}
    assert PRESETS["composite"]().score(_run(*_reads(4))).value == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["composite", "knowlyr", "sage", "helloagents"])
@pytest.mark.parametrize("status", [OutcomeStatus.UNKNOWN, OutcomeStatus.ERROR])
def test_an_unknown_outcome_is_unscored_and_says_what_to_do(name: str, status: OutcomeStatus) -> None:
    score = PRESETS[name]().score(_run(*_reads(2), status=status))
    assert (score.status, score.value) == ("unscored", None)
    assert status.value in (score.reason or "")
    assert "scorer='rules'" in (score.reason or "")


def test_process_alone_is_scored_where_the_profile_asks_for_it() -> None:
    mine = profile("coding").model_copy(update={"mix": {"process": 1.0}})
    score = PRESETS["composite"](mine).score(_run(*_reads(2), status=OutcomeStatus.UNKNOWN))
    assert (score.value, _parts(score)["outcome"]) == (1.0, None)


@pytest.mark.parametrize(
    ("mix", "lowest"),
    [
        (None, 0.6),
        ({"outcome": 0.5, "process": 0.5}, 0.5),
        ({"outcome": 5, "process": 3, "efficiency": 2}, 0.5),
        ({"outcome": 1}, 1.0),
    ],
)
def test_no_failed_run_comes_above_a_successful_one_in_any_mix(mix: dict[str, float] | None, lowest: float) -> None:
    """The best failure: clean work, 99 % of the tests. The worst success: equal calls, tampering, far too many steps."""
    changes = {} if mix is None else {"mix": mix}
    scorer = PRESETS["composite"](DomainProfile.model_validate(profile("coding").model_dump() | changes))
    best = _scored(
        _run(*_reads(3), reference_steps=3),
        Outcome(status=OutcomeStatus.FAILURE, scores={"tests_passed": 99, "tests_total": 100}),
    )
    spoil = call("edit_file", "ok", path="tests/test_a.py", old_string="assert x", new_string="assert True")
    worst = _run(*_reads(1) * 20, spoil, reference_steps=1)
    failed, bare, least = (scorer.score(one).value for one in (best, _scored(_run(answer()), best.outcome), worst))
    assert None not in (failed, least)
    assert max(failed, bare or 0.0) <= least + 1e-12
    assert least == pytest.approx(lowest)


def test_giving_up_at_once_is_not_efficient() -> None:
    """A failed run has efficiency 0 and not 1, be it ever so short: 0.3 of the process is all it can have."""
    score = PRESETS["composite"]().score(_run(*_reads(1), status=OutcomeStatus.FAILURE, reference_steps=10))
    assert score.value == pytest.approx(0.3)


def test_all_tests_passed_is_success_where_nobody_said_so() -> None:
    made = _run(*_reads(1), status=OutcomeStatus.UNKNOWN)
    for passed, value in ((4, 1.0), (3, (0.6 * 0.75 / 3 + 0.3) / 0.9)):
        result = _scored(made, Outcome(scores={"tests_passed": passed, "tests_total": 4}))
        assert PRESETS["composite"]().score(result).value == pytest.approx(value)


def test_knowlyr_is_outcome_process_and_efficiency_as_far_as_they_are_known() -> None:
    """Outcome 3/4; four steps, one an equal read: rubrics 0.15 and 0.15 of which one is 0 in that step, so (3 + 0.5)/4 = 0.875;
    efficiency 2/4: (0.4 x 0.75 + 0.5 x 0.875 + 0.1 x 0.5) / 1.
    """
    a, b, c = _reads(3)
    made = _scored(_run(a, b, c, a, reference_steps=2), Outcome(scores={"tests_passed": 3, "tests_total": 4}))
    score = PRESETS["knowlyr"]().score(made)
    assert score.value == pytest.approx(0.3 + 0.4375 + 0.05)
    assert score.steps[3].parts == {"info_utilization": 1.0, "non_redundancy": 0.0}
    assert "goal_progress, tool_choice, param_correctness" in score.components[1].feedback

    assert _parts(PRESETS["knowlyr"]().score(_run(*_reads(2))))["efficiency"] is None
    score = PRESETS["knowlyr"](profile("advisory")).score(_run(call("respond", "ok", text="a")))
    assert (_parts(score)["process"], score.value) == (None, 1.0)


def test_a_crew_that_succeeds_scores_one_and_not_its_steps_over_tokens() -> None:
    made = _scored(
        _run(*_reads(1)), Outcome(status=OutcomeStatus.SUCCESS, scores={"total_steps": 1, "total_tokens": 800})
    )
    assert PRESETS["knowlyr"](profile("crew")).score(made).components[0].value == 1.0


def test_sage_is_five_parts_less_penalties_for_what_was_really_wrong() -> None:
    """Worked examples.

    - Called a read twice and look; needed the read. F1 2/3; 6 steps where 5 are enough: 1 - 0.2/5 = 0.96; one
      redundant call: timing 0.8; format 1. 0.4 + 0.25 x 2/3 + 0.15 x 0.96 + 0.08 + 0.1 = 0.890667, less wrong_tool
      0.3 and redundant_call 0.2.
    - `read_file` has no three digits at its end and exists; "done" in a failed run is no completion.
    """
    a, *rest = _reads(4)
    made = _run(a, a, *rest, call("look", "y"), target_tools=["read_file"], reference_steps=5)
    score = PRESETS["sage"]().score(made)
    assert score.value == pytest.approx(0.4 + 0.5 / 3 + 0.144 + 0.08 + 0.1 - 0.5)
    assert score.components[-1].feedback == "-0.5: 1 x wrong_tool, 1 x redundant_call."

    score = PRESETS["sage"]().score(_run(*_reads(1), answer("I am done."), status=OutcomeStatus.FAILURE))
    assert _parts(score)["task_completion"] == 0.0
    assert _parts(score)["penalties"] == 1.0
    assert score.value == pytest.approx(0.2 / 0.6)


def test_helloagents_pays_steps_and_brevity_only_for_right_answers() -> None:
    """Right: 2/3, and 1/3 x 2/5 for two steps. Right and 2048 characters: 2/3 x 0.9. Wrong with six line breaks: 0."""
    scorer = PRESETS["helloagents"]()
    right = scorer.score(_run(answer("Step 1: 3 x 4.\nStep 2: 12.\nFinal Answer: 12"), answer="12"))
    assert right.value == pytest.approx(2 / 3 + 2 / 15)
    text = "Final Answer: 12".rjust(2048)
    assert scorer.score(_run(answer(text), answer="12")).value == pytest.approx(2 / 3 * 0.9)
    wrong = scorer.score(_run(answer("\n\n\n\n\n\nFinal Answer: 13"), answer="12"))
    assert (wrong.value, wrong.status) == (0.0, "scored")


@pytest.mark.parametrize("name", PRESETS)
def test_shares_of_known_parts_add_up_and_the_breakdown_gives_the_value(name: str) -> None:
    for domain in DOMAINS:
        for made in cases(domain).values():
            score = PRESETS[name]().score(made)
            known = [part for part in score.components if part.value is not None and part.name != "penalties"]
            assert math.fsum(part.weight for part in known) == pytest.approx(1)
            assert score.value is not None
            assert score.feedback
            if name in {"composite", "knowlyr", "helloagents"}:
                assert score.value == pytest.approx(math.fsum(part.weight * (part.value or 0.0) for part in known))


def test_a_preset_takes_a_profile_or_finds_it() -> None:
    made = _run(*_reads(1))
    for make in PRESETS.values():
        assert make().score(made) == make(profile("coding")).score(made)
        assert make(DomainProfile(name="bare")).score(made).status == "scored"
