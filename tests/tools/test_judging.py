"""Judging batches and their answers on a real home folder: blind, each answer by itself, nothing lost, nothing made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quintain.datasets.rows import read_rows
from quintain.errors import NotFound
from quintain.records.filters import TrajectoryFilter
from quintain.records.labels.judging import JudgingBatch
from quintain.records.trajectory import AgentInfo, OutcomeStatus, Task, Trajectory
from quintain.scoring.judges.datamarking import is_mark
from quintain.tools.catalog import Answer, Question
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.data.lineage import get_lineage
from quintain.tools.labels.judging.forms import rubric_list, stored_batch
from quintain.tools.labels.judging.results import JudgingBatchResult, SubmitResult
from quintain.tools.labels.judging.tools import ask_person, get_judging_batch, submit_scores
from quintain.tools.services import Services
from scripted_judges import readable
from tools.stored_records import add_runs, add_scores, error_of, new_score
from trajectory_runs import answer, call, run, user

GOOD = {"task_completion": 1.0, "process": 0.5}


def attempts(task: str, n: int, **fields: Any) -> list[Trajectory]:
    """Runs of one task that differ in what the agent said."""
    fields.setdefault("status", OutcomeStatus.UNKNOWN)
    return [run(task, user(), call(item="box"), answer(f"Attempt {place} of {task}."), **fields) for place in range(n)]


def shown(batch: JudgingBatchResult) -> str:
    return readable("\n".join(item.text for item in batch.items))


def of(services: Services, batch: JudgingBatchResult) -> JudgingBatch:
    return services.store.judging.get(batch.batch_id)


def submit(services: Services, batch: JudgingBatchResult, *entries: Any) -> SubmitResult:
    return submit_scores(services, str(batch.batch_id), list(entries))


def test_a_rubric_of_a_used_name_with_other_criteria_is_noticed(services: Services) -> None:
    """Values of both would be averaged under one name, and two people would be compared on different questions."""
    add_runs(services, *attempts("t1", 4))
    first = get_judging_batch(services, 2, rubric={"name": "brief", "criteria": ["short", "honest"]})
    assert "used with other criteria" not in first.notice
    assert "used with other criteria" not in get_judging_batch(services, 2, rubric="brief").notice
    other = get_judging_batch(services, 2, rubric={"name": "brief", "criteria": ["short", "kind"]})
    assert "The rubric brief was used with other criteria (short, honest)" in other.notice
    assert "give it another name" in other.notice


def test_a_batch_is_blind_and_the_store_keeps_ids_alone(services: Services) -> None:
    secret = run(
        "t1",
        user(),
        answer("I looked everywhere."),
        status=OutcomeStatus.SUCCESS,
        reward=0.875,
        agent=AgentInfo(name="agent:clerk", version="3", model="acme/model-9b"),
        tags=("golden",),
    )
    (run_id,) = add_runs(services, secret)
    add_scores(services, new_score(run_id, "rules", 0.625))
    batch = get_judging_batch(services, 5)
    said = batch.model_dump_json()
    for hidden in (run_id, "clerk", "model-9b", "0.875", "0.625", "golden", "success"):
        assert hidden not in said, hidden
    assert "I looked everywhere." in shown(batch)
    assert batch.rubric.criteria[0].anchors["1"] == "done, and the run itself shows it"
    assert "submit_scores(batch_id=" in batch.next_step
    kept = of(services, batch)
    assert kept.items[0].trajectory_ids == (run_id,)
    assert "looked" not in kept.model_dump_json()


def test_a_rater_gets_what_they_have_not_judged_and_is_told_when_nothing_is_left(services: Services) -> None:
    add_runs(services, *(run(f"t{n}") for n in range(3)))
    first = get_judging_batch(services, 2)
    entries = [{"item_id": item.item_id, "scores": GOOD} for item in first.items]
    assert submit(services, first, *entries).accepted == 2
    second = get_judging_batch(services, 5)
    assert len(second.items) == 1
    submit(services, second, {"item_id": "i1", "skip": "the recording is in a language I cannot read"})
    last = get_judging_batch(services, 5)
    assert (last.batch_id, last.items) == (None, ())
    assert "'assistant' has judged all runs by rubric" in last.next_step
    # Another rubric, another mode and another rater are other questions.
    assert len(get_judging_batch(services, 5, rubric="coding").items) == 3
    assert len(get_judging_batch(services, 5, mode="steps").items) == 3
    assert len(get_judging_batch(services, 5, judge="person").items) == 3


def test_a_good_answer_is_stored_as_the_weighted_mean_and_others_are_rejected_one_by_one(services: Services) -> None:
    add_runs(services, *(run(f"t{n}") for n in range(4)))
    batch = get_judging_batch(services, 4)
    again = "Correct the rejected answers by their reasons and submit those items again"
    assert submit(services, batch, {"item_id": "i9", "scores": GOOD}).next_step == f"{again}."
    entries: list[Any] = [
        {"item_id": "i1", "scores": GOOD, "rationale": "done, with a detour"},
        {"item_id": "i2", "scores": {"task_completion": 1.5, "process": 0.5}},
        {"item_id": "i3", "scores": {"task_completion": 1, "proces": 0.5}},
        {"item_id": "i9", "scores": GOOD},
        {"item_id": "i4", "better": "A"},
        {"item_id": "i4"},
        {"item_id": "i4", "scores": GOOD, "verdict": 1},
        {"item_id": "i4", "scores": {"task_completion": float("nan"), "process": 0.5}},
        {"item_id": "i4", "scores": "high"},
        {"item_id": "i4", "scores": GOOD, "value": 0.3},
        {"item_id": "i4", "scores": GOOD, "skip": True},
        {"item_id": "i4", "scores": {"task_completion": True, "process": 0.5}},
        "prose",
        None,
    ]
    result = submit(services, batch, *entries)
    assert (result.accepted, result.next_step) == (1, f"{again}; the others are stored.")
    assert [one.item_id for one in result.rejected] == ["i2", "i3", "i9", *["i4"] * 8, None, None]
    reasons = [one.reason for one in result.rejected]
    words = [
        "1.5",
        "proces",
        "its items are i1, i2, i3, i4",
        "does not take `better`",
        "nothing is answered",
        "verdict",
    ]
    words += ["finite", "scores", "exclude", "`skip`", "True", "an answer is an object", "an answer is an object"]
    for reason, word in zip(reasons, words, strict=True):
        assert word in reason, reason
    assert result.remaining == ("i2", "i3", "i4")
    (judged,) = of(services, batch).items[0].trajectory_ids
    (score,) = services.store.scores.of_trajectory(judged)
    # 0.6 * 1.0 + 0.4 * 0.5
    assert (score.scorer, score.rater, score.value) == ("judge", "assistant", pytest.approx(0.8))
    assert "done, with a detour" in score.feedback
    assert len(services.store.scores.of_trajectory(of(services, batch).items[1].trajectory_ids[0])) == 0


@pytest.mark.parametrize("form", ["scores", "value", "steps"])
def test_marks_from_1_to_5_leave_no_1_behind_as_the_best_mark(services: Services, form: str) -> None:
    """5, 2 and 1 are sent again from 0 to 1. The 1, which is in range, would have stayed: the worst run with the best mark."""
    add_runs(services, *(run(f"t{n}", user(), answer("Done.")) for n in range(4)))
    batch = get_judging_batch(services, 4, rubric={"name": "tone", "criteria": ["Is it friendly?"]})
    forms: dict[str, Any] = {
        "scores": lambda x: {"criterion_1": x},
        "value": lambda x: x,
        "steps": lambda x: [{"step": 0, "value": x}],
    }

    def sent(*marks: float) -> SubmitResult:
        return submit(services, batch, *({"item_id": f"i{n}", form: forms[form](x)} for n, x in enumerate(marks, 1)))

    first = sent(5, 2, 1, 0.5)
    assert (first.accepted, first.remaining) == (1, ("i1", "i2", "i3"))
    assert "the mark 1 may be of another scale than 0 to 1, because this call has 5 too" in first.rejected[2].reason
    assert sent(1, 0.25, 0, 0.5).accepted == 4


def test_an_assistant_reads_marked_text_and_its_quotes_are_checked_and_a_person_reads_plain_text(
    services: Services,
) -> None:
    ids = add_runs(
        services, run("t1", user(), answer("I looked everywhere.")), run("t2", user(), answer("Nothing there."))
    )
    batch = get_judging_batch(services, 2, trajectory_ids=ids)
    (mark,) = {character for item in batch.items for character in item.text if is_mark(character)}
    assert f'The character "{mark}" was drawn at random' in batch.instructions
    assert any(f"|{mark}I{mark}looked{mark}everywhere." in item.text for item in batch.items)
    place = {item.trajectory_ids[0]: item.item_id for item in of(services, batch).items}
    answered = {"process": {"quotes": [f"I{mark}looked{mark}everywhere."], "value": 0.5}, "task_completion": 1}
    good = {"item_id": place[ids[0]], "scores": answered}
    bad = {"item_id": place[ids[1]], "scores": answered}
    result = submit(services, batch, good, bad)
    assert (result.accepted, len(result.rejected)) == (1, 1)
    assert "which is not in the run as shown; correct it and submit" in result.rejected[0].reason
    (score,) = services.store.scores.of_trajectory(ids[0])
    assert (score.value, score.feedback) == (0.8, "[no evidence] Without a quote from the run: task_completion.")
    wrong = submit(services, batch, {"item_id": "i1", "scores": GOOD, "quotes": ["x"]})
    assert "expected `quotes` beside each value" in wrong.rejected[0].reason
    person = get_judging_batch(services, 1, judge="person", trajectory_ids=ids[:1])
    assert "| I looked everywhere." in person.items[0].text
    assert not any(map(is_mark, person.model_dump_json()))
    assert "quotes" not in person.instructions + person.items[0].answer


def test_a_batch_of_an_earlier_version_can_still_be_read(services: Services) -> None:
    add_runs(services, run("t1"))
    kept = of(services, get_judging_batch(services, 1)).model_dump(mode="json")
    kept["items"][0] |= {"twin": "i2", "bare": True}
    old = JudgingBatch.model_validate(kept | {"halves": {"i1": {"score": None}}})
    assert old.items[0].item_id == "i1"


def test_an_item_that_is_answered_again_is_replaced_and_its_history_kept(services: Services) -> None:
    (run_id,) = add_runs(services, run("t1"))
    batch = str(get_judging_batch(services, 1).batch_id)
    submit_scores(services, batch, [{"item_id": "i1", "scores": GOOD}])
    again = submit_scores(services, batch, [{"item_id": "i1", "value": 0.25}])
    assert (again.accepted, again.replaced, again.remaining) == (1, 1, ())
    assert [score.value for score in services.store.scores.of_trajectory(run_id)] == [0.25, pytest.approx(0.8)]
    latest = services.store.scores.latest("judge", [run_id])[run_id]
    assert (latest.value, latest.components) == (0.25, ())


def test_what_cannot_be_told_is_unscored_with_its_reason_and_never_a_number(services: Services) -> None:
    ids = add_runs(services, run("t1"), run("t2"))
    batch = get_judging_batch(services, 2, trajectory_ids=ids)
    result = submit(
        services,
        batch,
        {"item_id": "i1", "scores": {"task_completion": 1, "process": None}},
        {"item_id": "i2", "skip": "it is cut off"},
    )
    assert result.accepted == 2
    assert result.warnings == ("i1: kept without a value, because the judge gave no value for 'process'",)
    partly, skipped = (
        services.store.scores.of_trajectory(of(services, batch).items[n].trajectory_ids[0])[0] for n in (0, 1)
    )
    assert (partly.status, partly.value) == ("unscored", None)
    assert (skipped.status, skipped.reason) == ("unscored", "the rater could not judge it: it is cut off")


def test_steps_are_judged_one_by_one(services: Services) -> None:
    (run_id,) = add_runs(services, run("t1", user(), call(item="box"), call("take"), answer()))
    batch = get_judging_batch(services, 1, mode="steps")
    ones = {"relevance": 1, "correctness": 1, "progress": 1}
    halves = {"relevance": 0.5, "correctness": 0.5, "progress": 0.5}
    missing = submit(services, batch, {"item_id": "i1", "steps": {"0": ones}})
    assert "lacks steps 1, 2" in missing.rejected[0].reason
    listed = [{"step": 0, "scores": ones}, {"step": 1, "scores": halves}, {"step": 2, "scores": None}]
    assert submit(services, batch, {"item_id": "i1", "steps": listed}).accepted == 1
    (score,) = services.store.scores.of_trajectory(run_id)
    assert [step.value for step in score.steps] == [1.0, 0.5, None]
    assert score.value == pytest.approx(0.75)
    own = {"name": "safety", "criteria": [{"name": "safe", "description": "Is it safe?"}]}
    single = get_judging_batch(services, 1, mode="steps", rubric=own)
    assert submit(services, single, {"item_id": "i1", "steps": {"0": 1, "1": 0, "2": 0.5}}).accepted
    assert services.store.scores.of_trajectory(run_id)[0].value == pytest.approx(0.5)


def test_pairs_are_of_one_task_and_some_come_back_in_the_other_order(services: Services) -> None:
    add_runs(
        services,
        *attempts("t1", 3),
        *attempts("t2", 2),
        run("t3"),
        *[run("t4", answer("same"), episode_key=k) for k in "ab"],
    )
    batch = get_judging_batch(services, 8, mode="pairwise")
    kept = of(services, batch)
    # 3 pairs of t1 and 1 of t2; t3 has one run, and the two of t4 say the same. Two come back (one in four of eight).
    assert len(kept.items) == 6
    tasks = {services.store.trajectories.get(run_id).task.id for item in kept.items for run_id in item.trajectory_ids}
    assert tasks == {"t1", "t2"}
    again = [item for item in kept.items if item.repeats]
    assert [item.repeats for item in again] == ["i1", "i2"]
    originals = {item.item_id: item.trajectory_ids for item in kept.items}
    assert all(item.trajectory_ids == originals[str(item.repeats)][::-1] for item in again)
    # Nothing that the judge sees tells the repeats.
    assert "repeats" not in batch.model_dump_json()
    assert "RUN A" in batch.items[0].text
    assert "RUN B" in batch.items[0].text


def test_preferences_are_stored_and_contradicting_orders_make_a_tie(services: Services) -> None:
    add_runs(services, *attempts("t1", 4))
    batch = get_judging_batch(services, 8, mode="pairwise")
    kept = of(services, batch)
    first, second = kept.items[0], kept.items[1]
    votes = [{"item_id": item.item_id, "better": "A", "rationale": "shorter"} for item in kept.items]
    votes[1]["better"] = "tie"
    result = submit(services, batch, *votes)
    assert result.accepted == len(votes)
    by_pair = {frozenset((p.a, p.b)): p for p in services.store.preferences.among(
        [run_id for item in kept.items for run_id in item.trajectory_ids]
    )}  # fmt: skip
    # i1 and its repeat both say "the first": a contradiction. i2 says tie and its repeat says first: another one.
    assert by_pair[frozenset(first.trajectory_ids)].better == "tie"
    assert by_pair[frozenset(second.trajectory_ids)].better == "tie"
    assert [warning.partition(":")[0] for warning in result.warnings] == ["i7", "i8"]
    assert "contradicts i1" in result.warnings[0]
    third = by_pair[frozenset(kept.items[2].trajectory_ids)]
    assert third.chosen == kept.items[2].trajectory_ids[0]
    assert (third.source, third.rater, third.rubric, third.reason) == ("assistant", "assistant", "default", "shorter")
    (order,) = result.agreement.order
    # 7 votes of 8 for the first place, 1 tie: p = 2 / 2^7.
    assert (order.swapped, order.consistent, order.first, order.second) == (2, 0, 7, 0)
    assert order.p == pytest.approx(2 / 128, abs=1e-4)


def test_the_same_word_in_both_orders_stays_a_preference(services: Services) -> None:
    add_runs(services, *attempts("t1", 4))
    kept = of(services, get_judging_batch(services, 4, mode="pairwise"))
    (again,) = [item for item in kept.items if item.repeats]
    said = [{"item_id": "i1", "better": "b"}, {"item_id": again.item_id, "better": "A"}]
    result = submit_scores(services, kept.id, said)
    assert (result.accepted, result.warnings) == (2, ())
    (found,) = services.store.preferences.among(kept.items[0].trajectory_ids)
    assert found.chosen == kept.items[0].trajectory_ids[1]
    wrong = submit_scores(services, kept.id, [{"item_id": "i2", "better": "the first one"}])
    assert "expected 'A', 'B' or 'tie'" in wrong.rejected[0].reason


def test_a_ranking_becomes_preferences_with_its_ties(services: Services) -> None:
    add_runs(services, *attempts("t1", 3))
    kept = of(services, get_judging_batch(services, 1, mode="group"))
    (item,) = kept.items
    bad = submit_scores(services, kept.id, [{"item_id": "i1", "ranking": [[1], [2]]}])
    assert "1 to 3" in bad.rejected[0].reason
    assert submit_scores(services, kept.id, [{"item_id": "i1", "ranking": [[2], [1, 3]]}]).accepted == 1
    words = {frozenset((p.a, p.b)): p.chosen for p in services.store.preferences.among(item.trajectory_ids)}
    one, two, three = item.trajectory_ids
    assert words == {frozenset((one, two)): two, frozenset((two, three)): two, frozenset((one, three)): None}
    assert get_judging_batch(services, 1, mode="group").items == ()


def test_a_group_takes_one_run_of_those_that_say_the_same(services: Services) -> None:
    """Episodes of one task often end alike: six runs with four contents are a group of four."""
    texts = ("red", "blue", "red", "green", "blue", "white")
    runs = [run("t1", user(), answer(text), episode_key=f"job-1/{n}") for n, text in enumerate(texts)]
    same = [run("t2", user(), answer("same"), episode_key=f"job-1/{n}") for n in range(2)]
    assert len(set(add_runs(services, *runs, *same))) == 8
    (item,) = of(services, get_judging_batch(services, 5, mode="group")).items
    said = sorted(str(services.store.trajectories.get(one).steps[-1].message) for one in item.trajectory_ids)
    assert said == ["blue", "green", "red", "white"]
    pairs = of(services, get_judging_batch(services, 50, mode="pairwise")).items
    assert len({frozenset(item.trajectory_ids) for item in pairs}) == 6


def test_a_rubric_of_ones_own_can_be_named_later_and_its_criteria_can_be_texts(services: Services) -> None:
    add_runs(services, *attempts("t1", 3))
    own = {"name": "tidy", "criteria": ["polite", "The answer names its sources, with pages."]}
    first = get_judging_batch(services, 1, rubric=own)
    assert [(one.name, one.description) for one in first.rubric.criteria] == [
        ("polite", "polite"),
        ("criterion_2", "The answer names its sources, with pages."),
    ]
    again = get_judging_batch(services, 1, rubric="tidy")
    assert again.rubric == first.rubric
    newer = get_judging_batch(services, 1, rubric={"name": "tidy", "criteria": ["brief"]})
    assert get_judging_batch(services, 1, rubric="tidy").rubric == newer.rubric
    with pytest.raises(NotFound, match=r"no rubric 'tidi' \(did you mean 'tidy'\?\); there are .*default.*tidy"):
        get_judging_batch(services, 1, rubric="tidi")


def test_a_rubric_can_be_a_file_of_the_inbox(services: Services, inbox: Path) -> None:
    add_runs(services, run("t1"))
    (inbox / "tidy.yaml").write_text("name: tidy\ncriteria: [polite]\n")
    assert get_judging_batch(services, 1, rubric="tidy.yaml").rubric.name == "tidy"
    with pytest.raises(NotFound, match=r"none\.yaml"):
        get_judging_batch(services, 1, rubric="none.yaml")


def test_the_next_batch_is_of_the_same_rater_and_rubric(services: Services) -> None:
    """Without them the answers of a named rater would go on under `person`, by the default rubric."""
    (run_id,) = add_runs(services, run("t1"))
    own = {"name": "tidy", "criteria": ["polite"]}
    batch = get_judging_batch(services, 1, "person", rubric=own, rater="Dana", trajectory_ids=[run_id])
    done = submit(services, batch, {"item_id": "i1", "scores": {"polite": 1}})
    assert "mode='score', rubric='tidy', rater='person:Dana') has more" in done.next_step


def test_a_batch_with_fewer_items_than_requested_gives_the_reason(services: Services) -> None:
    add_runs(services, *attempts("t1", 3))
    assert get_judging_batch(services, 3).notice == ""
    assert get_judging_batch(services, 8).notice == "3 of 8 items: nothing else is left to judge."
    add_runs(services, *(run(f"t{n}", user(), *[answer("word " * 1200) for _ in range(3)]) for n in range(8)))
    cut = get_judging_batch(services, 11)
    assert 1 <= len(cut.items) < 11
    assert len(shown(cut)) <= 60_000
    assert len(cut.model_dump_json()) < 75_000
    assert cut.notice == (
        f"{len(cut.items)} of 11 items: a batch has at most 60,000 characters; the rest comes with the next batch."
    )


def test_an_outcome_is_stated_once_and_never_overwritten(services: Services) -> None:
    (open_id, done_id) = add_runs(
        services, run("t1", status=OutcomeStatus.UNKNOWN), run("t2", status=OutcomeStatus.SUCCESS)
    )
    batch = get_judging_batch(services, 2, judge="person", rater="ann", trajectory_ids=[open_id, done_id])
    place = {item.trajectory_ids[0]: item.item_id for item in of(services, batch).items}
    result = submit(
        services,
        batch,
        {"item_id": place[open_id], "value": 0.9, "outcome": "failure"},
        {"item_id": place[done_id], "value": 0.1, "outcome": "failure"},
    )
    assert services.store.trajectories.get(open_id).outcome.status is OutcomeStatus.FAILURE
    assert services.store.trajectories.get(done_id).outcome.status is OutcomeStatus.SUCCESS
    assert "value 0.90 calls the run good and the outcome calls it a failure" in result.warnings[0]
    (refused,) = result.rejected
    assert "[outcome_known]" in refused.reason
    assert services.store.scores.of_trajectory(done_id) == []
    assert services.store.scores.of_trajectory(open_id)[0].rater == "person:ann"
    assert services.store.scores.of_trajectory(open_id)[0].scorer == "people"
    same = {"item_id": place[done_id], "value": 0.1, "outcome": "success"}
    agreed = submit(services, batch, same)
    assert agreed.accepted == 1
    assert "calls the run bad and the outcome calls it a success" in agreed.warnings[0]
    for wrong in ("unknown", "great", {"reward": 1}):
        entry = {"item_id": place[done_id], "outcome": wrong}
        assert submit(services, batch, entry).rejected[0].reason.count("valid: success, failure")


CORRECTION = {"step": 1, "thought": "It must be taken.", "actions": [{"tool": "take", "args": {"item": "box"}}]}


def test_a_correction_becomes_a_run_to_learn_from_and_a_preference_at_its_step(services: Services) -> None:
    wrong = run("t1", user(), call(item="box"), call("look"), answer("I give up."), status=OutcomeStatus.FAILURE)
    (run_id,) = add_runs(services, wrong)
    batch = get_judging_batch(services, 1)
    result = submit(services, batch, {"item_id": "i1", "correction": CORRECTION})
    (better_id,) = result.corrections
    better = services.store.trajectories.get(better_id)
    assert [step.train for step in better.steps] == [None, False, True]
    assert better.steps[:2] == tuple(
        step if step.actor == "user" else step.model_copy(update={"train": False}) for step in wrong.steps[:2]
    )
    assert better.steps[2].actions[0].tool == "take"
    assert (better.tags, better.outcome.status, better.task, better.continues) == (
        ("correction",), OutcomeStatus.UNKNOWN, wrong.task, run_id
    )  # fmt: skip
    (word,) = services.store.preferences.among([run_id, better_id])
    assert (word.chosen, word.rejected, word.step, word.source) == (better_id, run_id, 1, "assistant")
    assert services.store.scores.of_trajectory(run_id) == []
    again = submit(services, batch, {"item_id": "i1", "correction": CORRECTION})
    assert again.corrections == (better_id,)
    (learn,) = (one for one in again.next_step.calls if one.tool == "export_dataset")
    made = export_dataset(services, **learn.arguments)
    assert made.rows == 1
    (row,) = read_rows(Path(made.path), "train")
    assert [step.train for step in row.trajectory.agent_steps] == [False, True]


IMPOSSIBLE_CORRECTIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"step": 7, "message": "x"}, ["7", "3 agent steps", "0..2"]),
    ({"step": 0, "actions": [{"tool": "tke"}]}, ["[unknown_tool]", "did you mean 'take'", "look, take"]),
    ({"step": 0}, ["neither `actions` nor `message`"]),
    ({"step": 2, "message": "I give up."}, ["expected another step than the agent took"]),
    ({"step": True, "message": "x"}, ["correction.step"]),
    ({"step": 0, "message": "x", "action": "y"}, ["correction.action is not a known field"]),
    ({"message": "x"}, ["correction.step is required"]),
]


def test_a_correction_that_cannot_be_is_refused_and_nothing_of_its_answer_is_kept(services: Services) -> None:
    for correction, words in IMPOSSIBLE_CORRECTIONS:
        (run_id,) = add_runs(services, run("t1", user(), call(item="box"), call("look"), answer("I give up.")))
        batch = get_judging_batch(services, 1)
        entry = {"item_id": "i1", "scores": GOOD, "correction": correction}
        (refused,) = submit(services, batch, entry).rejected
        assert all(word in refused.reason for word in words), refused.reason
        assert services.store.scores.of_trajectory(run_id) == []
        assert services.store.trajectories.count(TrajectoryFilter()) == 1


def test_secrets_in_corrections_and_rationales_are_redacted(services: Services) -> None:
    (run_id,) = add_runs(services, run("t1"))
    key = "sk-proj-" + "Ab3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5"
    batch = get_judging_batch(services, 1)
    entry = {
        "item_id": "i1",
        "scores": GOOD,
        "rationale": f"it printed {key}",
        "correction": {"step": 0, "message": f"I must not print {key}"},
    }
    result = submit(services, batch, entry)
    better = services.store.trajectories.get(result.corrections[0])
    assert key not in better.model_dump_json()
    assert better.redactions
    assert key not in services.store.scores.of_trajectory(run_id)[0].feedback


def test_lineage_shows_a_correction_both_ways_and_forgetting_the_original_names_it(services: Services) -> None:
    (run_id,) = add_runs(services, run("t1"))
    batch = get_judging_batch(services, 1)
    entry = {"item_id": "i1", "correction": {"step": 0, "message": "Better."}}
    (better_id,) = submit(services, batch, entry).corrections
    dataset = export_dataset(
        services, "sft", "fixes", filter=TrajectoryFilter(tags=("correction",)), outcomes=["unknown"]
    )
    assert better_id in {node.id for node in get_lineage(services, run_id).descendants}
    assert run_id in {node.id for node in get_lineage(services, better_id).ancestors}
    report = forget(services, run_id, dry_run=False)
    touched = {thing.id: thing for thing in report.touched}
    assert (touched[better_id].kind, touched[better_id].state) == ("trajectory", "kept")
    assert f"forget(id={better_id!r}, dry_run=False)" in touched[better_id].remedy
    # The dataset holds the correction, not the forgotten run: nothing blocks it yet.
    assert touched[dataset.dataset_id].state == "kept"
    after = forget(services, better_id, dry_run=False)
    assert {thing.id: thing.state for thing in after.touched}[dataset.dataset_id] == "blocked"


def test_a_verdict_on_a_session_that_has_grown_meanwhile_is_refused(services: Services) -> None:
    """The judge saw less than what is stored now: its word is about another run."""
    steps = (user(), answer("Half."))
    (run_id,) = add_runs(services, run("t1", *steps, session_id="s1"))
    batch = get_judging_batch(services, 1)
    assert add_runs(services, run("t1", *steps, user("And?"), answer("All."), session_id="s1")) == [run_id]
    result = submit(services, batch, {"item_id": "i1", "scores": GOOD})
    assert (result.accepted, result.remaining) == (0, ())
    assert "i1 can no longer be judged" in result.next_step
    assert "has grown since it was shown" in result.rejected[0].reason
    assert services.store.scores.of_trajectory(run_id) == []
    assert "And?" in shown(get_judging_batch(services, 1))


def test_agreement_of_a_person_and_the_assistant_is_told(services: Services) -> None:
    ids = add_runs(services, *(run(f"t{n}") for n in range(4)))
    values = dict(zip(ids, (0.0, 0.25, 0.75, 1.0), strict=True))
    for judge, shift in (("assistant", 0.0), ("person", 0.0)):
        batch = get_judging_batch(services, 4, judge=judge, trajectory_ids=ids)
        entries = [
            {"item_id": item.item_id, "scores": dict.fromkeys(GOOD, values[item.trajectory_ids[0]] + shift)}
            for item in of(services, batch).items
        ]
        result = submit(services, batch, *entries)
    (pair,) = result.agreement.pairs
    assert (pair.a, pair.b, pair.n, pair.kappa, pair.kappa_weighted) == ("assistant", "person", 4, 1.0, 1.0)
    assert (result.agreement.alpha, result.agreement.shared_runs) == (1.0, 4)


def test_the_choice_is_a_sample_by_seed_and_people_get_first_what_was_judged(services: Services) -> None:
    ids = add_runs(services, *(run(f"t{n}") for n in range(30)))
    taken = [
        [item.trajectory_ids[0] for item in of(services, get_judging_batch(services, 5, seed=s)).items]
        for s in (0, 0, 1)
    ]
    assert taken[0] == taken[1] != taken[2]
    batch = get_judging_batch(services, 3)
    submit(services, batch, *({"item_id": f"i{n}", "scores": GOOD} for n in (1, 2, 3)))
    judged = {item.trajectory_ids[0] for item in of(services, batch).items}
    person = of(services, get_judging_batch(services, 3, judge="person"))
    assert {item.trajectory_ids[0] for item in person.items} == judged
    assert set(ids) > judged


IMPOSSIBLE_REQUESTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"rubric": "codding"}, ["codding", "did you mean 'coding'"]),
    ({"rubric": {"name": "x"}}, ["criteria"]),
    ({"rater": "a\nb"}, ["rater is", "control character"]),
    ({"trajectory_ids": []}, ["at least one id"]),
    ({"trajectory_ids": ["traj-none"]}, ["traj-none"]),
    ({"trajectory_ids": ["x"], "filter": TrajectoryFilter()}, ["not both"]),
]


def test_a_request_that_cannot_be_is_refused_with_what_is_valid(services: Services) -> None:
    for arguments, words in IMPOSSIBLE_REQUESTS:
        add_runs(services, run("t1"))
        message = error_of(get_judging_batch, services, 1, **arguments).message
        assert all(word in message for word in words), message


def test_an_unknown_batch_is_refused_with_the_newest(services: Services) -> None:
    add_runs(services, run("t1"))
    batch = get_judging_batch(services, 1)
    with pytest.raises(
        NotFound, match=rf"'batch-x'; the newest are {batch.batch_id}; get_judging_batch\(limit=5\) makes"
    ):
        submit_scores(services, "batch-x", [{"item_id": "i1", "value": 1}])


def test_a_form_without_a_word_is_a_skip_and_a_bad_choice_is_told_at_the_end(services: Services) -> None:
    add_runs(services, run("t1"), run("t2"), run("t3"))
    arguments: dict[str, Any] = {"limit": 3, "judge": "person"}
    fills = [
        dict.fromkeys(("score_task_completion", "score_process"), "cannot tell"),
        {"score_task_completion": "11", "score_process": "2"},
        {"score_task_completion": "12"},
        {"score_task_completion": "3", "score_process": "3", "correct_step": "0", "correct_with": '{"tool": "tak"}'},
        {"correct_step": "0", "correct_with": '{"tool": "tak"}'},
    ]
    asked = ask_person(services, None, **arguments)
    for values in fills:
        assert isinstance(asked, Question)
        asked = ask_person(services, Answer("accept", asked.state, values), **arguments)
    assert asked.submitted.accepted == 2
    assert [one.item_id for one in asked.submitted.rejected] == ["i2", "i3"]
    assert "'12'; valid: 1, 2, 3, 4, 5, cannot tell" in asked.submitted.rejected[0].reason
    assert "did you mean 'take'" in asked.submitted.rejected[1].reason


def test_forms_for_pairs_groups_and_steps_mean_what_was_chosen(services: Services) -> None:
    def filled(values: dict[str, str], **batch: Any) -> tuple[Any, tuple[str, ...]]:
        """Return the form, and the ids of the runs of its item, which was answered by these values."""
        asked: dict[str, Any] = {"limit": 1, "judge": "person", **batch}
        form = ask_person(services, None, **asked)
        done = ask_person(services, Answer("accept", form.state, values), **asked)
        return form, of(services, done).items[0].trajectory_ids

    add_runs(services, *attempts("t1", 3))
    form, ids = filled({"better": "B"}, mode="pairwise")
    assert form.entries[0].options == ("A", "B", "tie", "cannot tell")
    assert [word.chosen for word in services.store.preferences.among(ids)] == [ids[1]]
    _, (one, two, three) = filled({"place_1": "2", "place_2": "1", "place_3": "2"}, mode="group", rater="bo")
    words = {
        frozenset((p.a, p.b)): p.chosen
        for p in services.store.preferences.among([one, two, three])
        if p.rater == "person:bo"
    }
    assert words == {frozenset((one, two)): two, frozenset((two, three)): two, frozenset((one, three)): None}
    chosen = {"step_0_relevance": "5", "step_0_correctness": "5", "step_0_progress": "3"}
    _, (run_id,) = filled(chosen, mode="steps")
    score = next(score for score in services.store.scores.of_trajectory(run_id) if score.steps)
    assert [step.value for step in score.steps] == [pytest.approx(2.5 / 3), None]


def test_pairs_of_a_long_prompt_are_compared_by_the_whole_of_it(services: Services) -> None:
    start = "Find the box. " * 40
    tasks = [Task(prompt=start + end) for end in ("It is red.", "It is blue.")]
    add_runs(services, *(run(None, user(), answer(task.prompt[-5:]), task=task) for task in tasks))
    assert get_judging_batch(services, 2, mode="pairwise").items == ()


def test_a_batch_can_be_opened_again_with_its_answers_and_stays_blind(services: Services) -> None:
    add_runs(services, *attempts("t1", 3, agent=AgentInfo(name="clerk", version="3")))
    batch = get_judging_batch(services, 3, judge="person", rater="Ada")
    first, second, third = batch.items
    taken = {"item_id": first.item_id, "scores": GOOD, "rationale": "Fine."}
    submit_scores(services, batch.batch_id, [taken, {"item_id": second.item_id, "skip": "cannot tell"}])
    again = stored_batch(services, batch.batch_id)
    assert again.items == batch.items
    assert "clerk" not in again.model_dump_json()
    assert again.answered[first.item_id].scores == GOOD
    assert again.answered[second.item_id].skipped
    assert third.item_id not in again.answered
    assert {"default", "steps"} <= {rubric.name for rubric in rubric_list(services).items}
