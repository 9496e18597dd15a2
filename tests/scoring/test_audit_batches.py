"""The audit of many runs together: length, saturation, groups and separation."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from audit_cases import audit, chat
from quintain.records.labels.audit import AuditReport, Finding
from quintain.records.score import Component, Score
from quintain.records.trajectory import OutcomeStatus, Trajectory
from quintain.scoring.integrity.auditor import Auditor

FACT = "The bridge was finished in 1894 and carries two lanes of traffic over the river."
FILLER = "It is important to note that this is worth mentioning here. "
SALAD = "premise evidence derivation lemma corollary boundary gradient integral tensor manifold basis kernel spectrum operator norm "
DETAIL = (
    "Its towers stand on piers of granite.",
    "The steel came by barge from the north.",
    "Two engineers drew the plans, and a third checked them.",
    "Ships pass below when the road is lifted.",
    "Painters need four years for one coat.",
    "A toll was paid until the war.",
    "Nobody died while it was built, which was rare then.",
    "On clear days you see the hills from its middle.",
    "The lamps were lit by gas at first.",
    "Trams crossed it for thirty years.",
    "It was closed for repairs twice.",
    "A museum in the south tower tells its story.",
)


def flags(runs: list[Trajectory]) -> list[str]:
    return [found.check for found in audit(*runs).findings if found.severity == "flag"]


def finding(runs: list[Trajectory], check: str) -> Finding:
    return next(found for found in audit(*runs).findings if found.check == check)


def padded(
    n: int, pad: str, *, reward: str = "rises", seed: int = 0, tasks: int = 1, **metrics: str
) -> list[Trajectory]:
    """Replies that grow by a piece of padding each; the reward rises with them, or does not."""
    order = list(range(n))
    random.Random(seed).shuffle(order)
    values = {
        "rises": [(i + 1) / n for i in range(n)],
        "any": [(i + 1) / n for i in order],
        "falls": [1 - i / n for i in range(n)],
    }
    runs = []
    for i in range(n):
        worth = values[reward][i]
        named = {name: (worth if how == "same" else float(how)) for name, how in metrics.items()}
        runs.append(
            chat(f"When was the bridge of town {i % tasks} finished?", f"{FACT} {pad * i}", reward=worth, metrics=named)
        )
    return runs


def rewarded(run: Trajectory, reward: float) -> Trajectory:
    return run.model_copy(update={"outcome": run.outcome.model_copy(update={"reward": reward})})


INFLATED = {
    "a list of words, correctness flat": padded(10, SALAD, correct="0.5"),
    "a list of words, correctness unknown": padded(10, SALAD),
    "several tasks": padded(24, SALAD, tasks=3, correct="1"),
    "a task each": padded(14, SALAD, tasks=14, passed="0.5"),
    "real sentences, correctness flat": [
        chat("Tell me about the bridge.", " ".join(DETAIL[: i + 1]), reward=(i + 1) / 12, metrics={"correct": 1.0}) for i in range(12)
    ],
    "almost in order": [
        rewarded(run, min(1.0, (run.outcome.reward or 0) + 0.1 * (i % 2)))
        for i, run in enumerate(padded(16, SALAD, correct="0.5"))
    ],
    "eight runs": padded(8, SALAD, correct="0.5"),
    "Chinese filler": padded(10, "总而言之我们可以看到这一点非常重要。", correct="0.5"),
    "a bias beside quality": [
        chat("How old is the bridge?", FACT + FILLER * length, reward=0.5 * good + 0.04 * length, metrics={"correct": float(good)})
        for good in (0, 1)
        for length in range(12)
    ],
}  # fmt: skip

NOT_INFLATED = {
    "shorter is better": padded(12, SALAD, reward="falls", correct="0.5"),
    "correctness rises too": padded(12, SALAD, correct="same"),
    "correctness is the reward, in any order": padded(10, SALAD, reward="any", correct="same"),
    "longer where it is right": [
        chat("Why?", FACT * (1 + good) + DETAIL[i], reward=float(good), metrics={"correct": float(good)})
        for good in (0, 1)
        for i in range(8)
    ],
    "hard tasks, long answers": [
        chat(f"Question {i}?", " ".join(DETAIL[: i + 1]), reward=(i + 1) / 12, metrics={"correct": (i + 1) / 12}) for i in range(12)
    ],
    "a few runs": padded(5, SALAD, correct="0.5"),
    "one reward": [chat("Why?", " ".join(DETAIL[: i + 1]), reward=0.7) for i in range(12)],
    "one length": [chat("Why?", DETAIL[0], reward=i / 12) for i in range(12)],
    "chance": padded(40, SALAD, reward="any", seed=4, tasks=5, accuracy="1"),
    "different tasks, nothing known": [
        chat(f"Question {i}?", " ".join(DETAIL[: i + 1]), reward=(i + 1) / 12) for i in range(12)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", INFLATED)
def test_a_reward_that_grows_with_padding_is_flagged(name: str) -> None:
    assert "length_inflation" in flags(INFLATED[name])


@pytest.mark.parametrize("name", NOT_INFLATED)
def test_a_reward_that_has_other_reasons_is_not(name: str) -> None:
    found = [one for one in audit(*NOT_INFLATED[name]).findings if one.check == "length_inflation"]
    assert all(one.severity == "note" for one in found)
    assert name != "different tasks, nothing known" or found == []


def test_chance_alone_seldom_looks_like_inflation() -> None:
    """At p 0.005 one audit in ten of 20 with unrelated rewards is expected to look so."""
    runs = [padded(12, SALAD, reward="any", seed=seed, correct="0.5") for seed in range(20)]
    assert sum("length_inflation" in flags(one) for one in runs) <= 1


VARIED, SAME = "Attempt {i} at task {g} says {r} with some more words.", "The same seven words in every reply."


def grouped(
    groups: list[list[float]], *, metrics: dict[str, float] | None = None, reply: str = VARIED
) -> list[Trajectory]:
    return [
        chat(f"Task {g}?", reply.format(i=i, g=g, r=worth), reward=worth, metrics=metrics).model_copy(
            update={"group_id": f"g{g}", "episode_key": f"{g}.{i}"}
        )
        for g, rewards in enumerate(groups)
        for i, worth in enumerate(rewards)
    ]


COLLAPSED = {
    "all at the top": grouped([[1.0] * 4] * 5),
    "mostly at the bottom": grouped([[0.0] * 4] * 4 + [[0.0, 1.0, 0.0, 1.0]]),
    "at the top and wrong": grouped([[1.0] * 4] * 5, metrics={"correct": 0.2}),
    "one reply in all groups": grouped([[0.2, 0.4, 0.6, 0.8]] * 3, reply=SAME),
    "one reply in the only group": grouped([[0.0, 1.0] * 4], reply=SAME),
}
NOT_COLLAPSED = {
    "some easy tasks": grouped([[1.0] * 4] * 2 + [[0.0, 1.0, 0.5, 1.0]] * 3),
    "equal and correct": grouped([[1.0] * 4] * 5, metrics={"correct": 1.0}),
    "one run a task": grouped([[1.0]] * 30),
    "a single small group": grouped([[1.0] * 3]),
    "short equal answers": grouped([[0.0, 1.0, 0.0, 1.0]] * 4, reply="42"),
    "no groups": [chat("What is this?", f"It is thing number {i} of many.") for i in range(20)],
}


@pytest.mark.parametrize("name", COLLAPSED)
def test_groups_without_a_difference_are_flagged(name: str) -> None:
    assert "group_collapse" in flags(COLLAPSED[name])


@pytest.mark.parametrize("name", NOT_COLLAPSED)
def test_groups_that_differ_or_are_honestly_equal_are_not(name: str) -> None:
    assert flags(NOT_COLLAPSED[name]) == []


def test_many_at_the_maximum_are_a_note_and_a_flag_where_they_are_not_correct() -> None:
    def runs(correct: float | None) -> list[Trajectory]:
        metrics = None if correct is None else {"correct": correct}
        return [chat(f"Question {i}?", f"Reply number {i}.", reward=1.0, metrics=metrics) for i in range(30)]

    for correct, severity in ((None, "note"), (1.0, "note"), (0.3, "flag")):
        found = finding(runs(correct), "saturation")
        assert found.severity == severity
        assert "100% of 30" in found.evidence
    assert not [found for found in audit(*runs(None)[:19]).findings if found.check == "saturation"]


def scored(good: list[float], bad: list[float], scorer: str = "judge", *, known: bool = True) -> AuditReport:
    auditor = Auditor()
    statuses = [OutcomeStatus.SUCCESS] * len(good) + [OutcomeStatus.FAILURE] * len(bad)
    for i, (value, status) in enumerate(zip([*good, *bad], statuses, strict=True)):
        run = chat(f"Question {i}?", f"Reply number {i}.", reward=None)
        run = run.model_copy(
            update={"outcome": run.outcome.model_copy(update={"status": status if known else OutcomeStatus.UNKNOWN})}
        ).identified()
        part = Component(name=scorer, weight=1, value=value)
        auditor.add(
            run, Score(trajectory_id=run.id or "", scorer=scorer, status="scored", value=value, components=(part,))
        )
    return auditor.report()


def test_a_score_that_does_not_separate_successes_from_failures_is_flagged_as_surely_as_it_is_known() -> None:
    """Values 0.1 .. 0.8 on both sides: the area is exactly one half."""
    report = scored([i / 40 + 0.1 for i in range(30)], [i / 40 + 0.1 for i in range(30)])
    (found,) = [found for found in report.findings if found.check == "no_separation"]
    assert (found.severity, found.figures["auc"]) == ("flag", 0.5)
    assert found.figures["low"] < 0.5 < found.figures["high"] < 0.7

    report = scored([0.1, 0.2, 0.3, 0.15, 0.25], [0.9, 0.8, 0.7, 0.85, 0.95])
    assert [found.check for found in report.findings if found.severity == "flag"] == ["no_separation"]

    assert scored([0.6, 0.7, 0.8, 0.9, 0.5], [0.1, 0.2, 0.3, 0.4, 0.55]).findings == ()
    found = scored([0.2, 0.4, 0.6, 0.8, 0.5], [0.25, 0.35, 0.65, 0.75, 0.45]).findings
    assert [(one.check, one.severity) for one in found] == [("no_separation", "note")]

    assert "0 successes and 0 failures" in scored([0.5] * 6, [0.6] * 6, known=False).unchecked["no_separation"]
    assert "no_separation" in scored([1.0] * 6, [0.0] * 6, "outcome").unchecked


def test_the_audit_of_a_long_stream_keeps_a_bounded_amount() -> None:
    auditor = Auditor()
    runs = [chat(f"Question {i}?", " ".join(f"w{i}.{j}" for j in range(200)), reward=0.5) for i in range(8)]
    for run in runs:
        auditor.add(run)
    tracemalloc.start()
    for _ in range(10):
        for run in runs:
            auditor.add(run.model_copy())
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 90_000  # of 80 runs with 110 kB of text
    assert auditor.report().n == 88


def graded(i: int, length: int, *, task: str = "Tell me.", **metrics: float) -> Trajectory:
    reply = " ".join(DETAIL[(i + j) % len(DETAIL)] for j in range(length))
    run = chat(task, reply, reward=i / 30, metrics=metrics)
    return run.model_copy(update={"outcome": run.outcome.model_copy(update={"status": OutcomeStatus.SUCCESS})})


def test_longer_and_better_paid_runs_are_a_note_where_they_may_have_another_reason() -> None:
    by_task = [graded(i, 1 + i // 3, task=f"Question {i} of the exam?") for i in range(30)]
    assert flags(by_task) == []
    assert finding(by_task, "length_inflation").severity == "note"
    assert flags([graded(i, 1 + i // 3) for i in range(30)]) == ["length_inflation"]

    lengths = [1 + i // 3 + 2 * (i % 2) for i in range(30)]
    assert flags([graded(i, length) for i, length in enumerate(lengths)]) == ["length_inflation"]
    found = finding([graded(i, length, coverage=i / 30) for i, length in enumerate(lengths)], "length_inflation")
    assert found.severity == "note"
    assert "it rises with 'coverage' as well" in found.evidence
    # A part that only measures length is no other reason, whatever its name.
    assert flags([graded(i, length, detail=length / 30) for i, length in enumerate(lengths)]) == ["length_inflation"]

    runs = [chat("Tell me about the bridge.", " ".join(DETAIL[: i + 1]), reward=(i + 1) / 12) for i in range(12)]
    found = finding(runs, "length_inflation")
    assert found.severity == "note"
    assert "unknown" in found.evidence


def test_a_greedy_evaluation_that_repeats_itself_has_not_collapsed() -> None:
    """Ten tasks four times each, without groups: one reply and one reward a task, half of them right."""
    runs = [
        chat(f"Task {g}?", f"The result of task number {g} is item {g * 7}.", reward=float(g % 2)).model_copy(
            update={"episode_key": f"{g}.{i}"}
        )
        for g in range(10)
        for i in range(4)
    ]
    assert flags(runs) == []
    assert "group_collapse" in flags([run.model_copy(update={"group_id": run.task.id}) for run in runs])


def test_recorded_rewards_and_scores_are_looked_at_apart() -> None:
    """The scores separate; the recorded rewards are the wrong way round, and the highest ones are all for failures."""
    auditor = Auditor()
    for i in range(20):
        good = i % 2 == 0
        run = chat(f"Question {i}?", f"Reply number {i}.", reward=0.1 if good else 0.9)
        status = OutcomeStatus.SUCCESS if good else OutcomeStatus.FAILURE
        run = run.model_copy(update={"outcome": run.outcome.model_copy(update={"status": status})}).identified()
        auditor.add(run, Score(trajectory_id=run.id or "", scorer="judge", status="scored", value=0.9 if good else 0.1))
    found = [one for one in auditor.report().findings if one.severity == "flag"]
    assert {one.check for one in found} == {"no_separation", "saturation"}
    assert all(one.rewards == ("recorded",) and one.evidence.startswith("recorded rewards: ") for one in found)
