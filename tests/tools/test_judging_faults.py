"""Judging through a real client: whose word an outcome is, what takes an answer back, and corrections that can be found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import quintain
from mcp_client import ToolCaller
from quintain.records.trajectory import OutcomeStatus, Task, Trajectory
from quintain.tools.services import Services
from tools.dict_calls import Caller
from tools.stored_records import add_runs
from trajectory_runs import answer, run, user
from trajectory_runs import call as step

UNKNOWN = OutcomeStatus.UNKNOWN


def judged(ask: ToolCaller, said: dict[str, Any], **batch: Any) -> dict[str, Any]:
    """One item given out, and answered."""
    given = ask("get_judging_batch", **{"limit": 1, **batch})
    return ask("submit_scores", batch_id=given["batch_id"], scores=[{"item_id": "i1", **said}])


def test_an_assistants_outcome_keeps_its_name_and_gives_way_to_a_person(services: Services, ask: ToolCaller) -> None:
    (run_id,) = add_runs(services, run("t1", status=UNKNOWN))
    judged(ask, {"value": 0.9, "outcome": "success"})
    shown = ask("get_trajectory", trajectory_id=run_id)["trajectory"]
    assert (shown["outcome"]["status"], shown["extra"]["outcome_stated_by"]) == ("success", "assistant")
    result = judged(ask, {"outcome": "failure"}, judge="person", rater="Eve")
    assert result["accepted"] == 1
    assert "takes the place of 'success', which assistant had stated" in result["warnings"][0]
    shown = ask("get_trajectory", trajectory_id=run_id)["trajectory"]
    assert (shown["outcome"]["status"], shown["extra"]["outcome_stated_by"]) == ("failure", "person:Eve (relayed)")
    given = ask("get_judging_batch", limit=1, rater="other")
    assert "Eve" not in json.dumps(given["items"])
    answers = [{"item_id": "i1", "outcome": "success"}]
    again = ask("submit_scores", batch_id=given["batch_id"], scores=answers)
    assert "[outcome_known]" in again["rejected"][0]["reason"]
    assert "stated by person:Eve (relayed)" in again["rejected"][0]["reason"]


def test_a_recorders_outcome_replaces_an_assistants_and_never_the_other_way(
    services: Services, ask: ToolCaller
) -> None:
    one, other = add_runs(services, run("t1", status=UNKNOWN), run("t2", status=UNKNOWN))
    for run_id in (one, other):
        judged(ask, {"outcome": "success"}, trajectory_ids=[run_id])
    result = ask("record_trajectory", trajectory_id=one, outcome="failure")
    assert (result["outcome"], "'success', stated by assistant" in result["next_step"]) == ("failure", True)
    assert "outcome_stated_by" not in ask("get_trajectory", trajectory_id=one)["trajectory"].get("extra", {})
    # The same run recorded once more, with the outcome that its environment gave.
    add_runs(services, run("t2", status=OutcomeStatus.FAILURE, reward=0.25))
    kept = services.store.trajectories.get(other)
    assert (kept.outcome.status, kept.outcome.reward, kept.outcome_stated_by) == (OutcomeStatus.FAILURE, 0.25, None)
    late = judged(ask, {"outcome": "success"}, rater="b", trajectory_ids=[one])
    assert "stated by its environment or recorder" in late["rejected"][0]["reason"]
    assert "[outcome_known]" in ask.refused("record_trajectory", {"trajectory_id": one, "outcome": "success"})[0]


def test_a_word_that_an_assistant_passes_on_says_so(services: Services, ask: ToolCaller) -> None:
    (run_id,) = add_runs(services, run("t1", user(), answer("No.")))
    judged(ask, {"value": 0.5, "rationale": "fine"}, judge="person", rater="Eve")
    (score,) = services.store.scores.of_trajectory(run_id)
    assert (score.rater, score.feedback) == ("person:Eve", "(relayed) fine")


def test_what_a_person_submits_in_python_is_their_own_word(services: Services, home: Path, tool: Caller) -> None:
    runs = add_runs(services, *(run(f"t{n}", user(), answer("No.")) for n in range(2)))
    said = [{"item_id": "i1", "value": 0.5, "rationale": "fine"}]
    asked: dict[str, Any] = {"judge": "person", "rater": "Eve"}
    given = tool(action="judge", limit=1, trajectory_ids=runs[:1], **asked)
    assert tool(action="submit", batch_id=given["batch_id"], scores=said)["accepted"] == 1
    with quintain.open(home) as opened:
        batch = opened.judging_batch(1, trajectories=runs[1:], **asked)
        assert opened.submit_scores(str(batch.batch_id), said).accepted == 1
    for run_id in runs:
        (score,) = services.store.scores.of_trajectory(run_id)
        assert (score.rater, score.feedback) == ("person:Eve", "fine")


def corrections(services: Services) -> list[Trajectory]:
    return [one for one in services.store.trajectories.iterate() if "correction" in one.tags]


def test_a_replaced_correction_is_in_no_export(services: Services, ask: ToolCaller) -> None:
    (run_id,) = add_runs(services, run("t1", user(), step(item="box"), answer("I give up."), tags=("mine",)))
    batch = ask("get_judging_batch", limit=1)["batch_id"]
    made = []
    for words in ("First.", "Second.", "First."):
        said = {"item_id": "i1", "correction": {"step": 1, "message": words}}
        made += ask("submit_scores", batch_id=batch, scores=[said])["corrections"]
    first, second, again = made
    assert first == again != second
    # The second stands for nothing any more; the first is the rater's word again.
    assert {one.id: "replaced" in one.tags for one in corrections(services)} == {first: False, second: True}
    assert [word.chosen for word in services.store.preferences.involving([run_id])] == [first]
    some = {"filter": {"tags": ["correction"]}, "outcomes": ["unknown"]}
    sft = ask("export_dataset", kind="sft", name="a", **some)
    assert (sft["rows"], sft["dropped"]) == (1, {"replaced": 1})
    dpo = ask("export_dataset", kind="dpo", name="b", pairs="recorded", filter={"tags": ["mine"]})
    assert (dpo["rows"], dpo["dropped"]) == (1, {"replaced": 1})
    # One of another step, to the same item, replaces it too; to skip takes it back.
    said = {"item_id": "i1", "correction": {"step": 0, "message": "Third."}}
    (third,) = ask("submit_scores", batch_id=batch, scores=[said])["corrections"]
    assert [word.chosen for word in services.store.preferences.involving([run_id])] == [third]
    ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "skip": "on second thoughts"}])
    assert services.store.preferences.involving([run_id]) == []
    assert all("replaced" in one.tags for one in corrections(services))


def test_two_raters_of_one_correction_stand_by_it_each_for_themselves(services: Services, ask: ToolCaller) -> None:
    add_runs(services, run("t1", user(), answer("I give up.")))
    same = {"correction": {"step": 0, "message": "Go on."}}
    batches = [ask("get_judging_batch", limit=1, rater=name)["batch_id"] for name in ("a", "b")]
    for batch in batches:
        ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", **same}])
    ask("submit_scores", batch_id=batches[0], scores=[{"item_id": "i1", "skip": True}])
    (one,) = corrections(services)
    assert "replaced" not in one.tags
    ask("submit_scores", batch_id=batches[1], scores=[{"item_id": "i1", "skip": True}])
    assert "replaced" in corrections(services)[0].tags


GO = {
    "type": "function",
    "function": {
        "name": "go",
        "parameters": {
            "type": "object",
            "properties": {
                "to": {"type": "string", "enum": ["north", "south"]},
                "steps": {"type": "integer"},
                "by": {"properties": {"km": {"type": "number"}}},
            },
            "required": ["to"],
            "additionalProperties": False,
        },
    },
}


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({}, "'to' is a required property"),
    ({"to": "north", "stepps": 1}, "'stepps' was unexpected"),
    ({"to": "up"}, "is not one of ['north', 'south'] at $.to"),
    ({"to": "north", "steps": "two"}, "is not of type 'integer' at $.steps"),
    ({"to": "north", "steps": True}, "is not of type 'integer' at $.steps"),
    ({"to": "north", "by": {"km": "far"}}, "is not of type 'number' at $.by.km"),
]


def test_a_correction_whose_arguments_do_not_fit_is_rejected(services: Services, ask: ToolCaller) -> None:
    for args, said in MISFITS:
        add_runs(services, run("t1", user(), answer("No."), tools=(GO,)))
        result = judged(ask, {"correction": {"step": 0, "actions": [{"tool": "go", "args": args}]}})
        assert "correction.actions[0] does not fit go" in result["rejected"][0]["reason"]
        assert said in result["rejected"][0]["reason"]
        assert corrections(services) == []


def test_where_no_tools_are_known_only_a_message_corrects(services: Services, ask: ToolCaller) -> None:
    add_runs(services, run("t1", user(), answer("Action: look()"), tools=()))
    batch = ask("get_judging_batch", limit=1)["batch_id"]
    action = {"step": 0, "actions": [{"tool": "rm_rf", "args": {}}]}
    result = ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "correction": action}])
    assert "[unknown_tool] the run names no tools" in result["rejected"][0]["reason"]
    message = {"step": 0, "message": "Action: take()"}
    assert ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "correction": message}])["accepted"] == 1


def test_a_correction_has_a_bound(services: Services, ask: ToolCaller) -> None:
    add_runs(services, run("t1"))
    long = "x" * 20_001
    for given in (
        {"message": long},
        {"message": "y", "thought": long},
        {"actions": [{"tool": "look", "args": {"at": long}}]},
    ):
        (rejected,) = judged(ask, {"correction": {"step": 0, **given}})["rejected"]
        assert "[too_large] correction has 20," in rejected["reason"]
        assert "at most 20,000" in rejected["reason"]


def test_an_empty_answer_answers_nothing(services: Services, ask: ToolCaller) -> None:
    add_runs(services, run("t1"))
    for empty in ({"scores": {}}, {"steps": []}, {"correction": {}}):
        result = judged(ask, empty)
        assert (result["accepted"], result["remaining"]) == (0, ["i1"])
        assert "is empty, which answers nothing" in result["rejected"][0]["reason"]


def test_corrections_are_found_by_the_tags_of_the_original_and_not_given_out_to_judge(
    services: Services, ask: ToolCaller
) -> None:
    original, bystander = add_runs(
        services,
        run("t1", user(), answer("I give up."), tags=("exp", "v2")),
        run("t9", user(), answer("Other."), tags=("alone",)),
    )
    (better,) = judged(ask, {"correction": {"step": 0, "message": "Go on."}}, trajectory_ids=[original])["corrections"]
    assert set(services.store.trajectories.get(better).tags) == {"correction", "exp", "v2"}
    assert ask("export_dataset", kind="dpo", name="a", pairs="recorded", filter={"tags": ["exp"]})["rows"] == 1
    kept = services.store.judging.get(ask("get_judging_batch", limit=9, rater="b")["batch_id"])
    assert {run_id for item in kept.items for run_id in item.trajectory_ids} == {original, bystander}
    assert ask("get_judging_batch", limit=9, mode="pairwise")["items"] == []
    asked_for = ask("get_judging_batch", limit=9, filter={"tags": ["correction"]})
    assert len(asked_for["items"]) == 1


def test_a_run_whose_other_side_was_not_chosen_is_told_so(services: Services, ask: ToolCaller) -> None:
    a, b, c, d = add_runs(services, *(run("t1", user(), answer(text)) for text in "abcd"))
    ask("record_preferences", source="person", pairs=[{"chosen": a, "rejected": b}, {"chosen": c, "rejected": d}])
    result = ask("export_dataset", kind="dpo", name="x", pairs="recorded", trajectory_ids=[a, b, c])
    assert (result["rows"], result["dropped"]) == (1, {"other_side_not_chosen": 1})
    again = {"kind": "dpo", "name": "y", "pairs": "recorded", "trajectory_ids": [a, c]}
    (said,) = ask.refused("export_dataset", again)
    assert "they were compared with runs that are not among the chosen ones" in said


def test_to_skip_takes_a_score_back(services: Services, ask: ToolCaller) -> None:
    (run_id,) = add_runs(services, run("t1", user(), answer("Hm.")))
    batch = ask("get_judging_batch", limit=1)["batch_id"]
    ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "value": 0.75}])
    ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "skip": "I misread it"}])
    assert [score.value for score in services.store.scores.of_trajectory(run_id)] == [None, 0.75], "the history is kept"
    assert [score.value for score in services.store.scores.by_scorers(["judge"], [run_id])[run_id]] == [None]
    ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "value": 0.5}])
    assert services.store.scores.by_scorers(["judge"], [run_id])[run_id][0].value == 0.5


def test_to_skip_takes_a_preference_back_and_leaves_the_other_order(services: Services, ask: ToolCaller) -> None:
    add_runs(services, *(run("t1", user(), answer(text)) for text in "abcd"))
    batch = services.store.judging.get(ask("get_judging_batch", limit=4, mode="pairwise")["batch_id"])
    again = next(item.item_id for item in batch.items if item.repeats == "i1")
    first, second = batch.items[0].trajectory_ids, batch.items[1].trajectory_ids

    def say(*said: tuple[str, str | None]) -> None:
        scores = [{"item_id": name, **({"better": word} if word else {"skip": True})} for name, word in said]
        assert ask("submit_scores", batch_id=batch.id, scores=scores)["accepted"] == len(said)

    def words(ids: tuple[str, ...]) -> list[str | None]:
        return [word.chosen for word in services.store.preferences.among(ids)]

    say(("i2", "A"))
    assert words(second) == [second[0]]
    say(("i2", None))
    assert words(second) == []
    # Both orders say the first place: a tie. Without the one, the other stands: its first is the second here.
    say(("i1", "A"), (again, "A"))
    assert words(first) == [None]
    say(("i1", None))
    assert words(first) == [first[1]]
    say((again, None))
    assert words(first) == []
    say(("i2", "B"), ("i2", None))
    assert words(second) == []


def test_to_skip_takes_a_ranking_back(services: Services, ask: ToolCaller) -> None:
    ids = add_runs(services, *(run("t1", user(), answer(text)) for text in "abc"))
    batch = ask("get_judging_batch", limit=1, mode="group")["batch_id"]
    ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "ranking": [[1], [2], [3]]}])
    assert len(services.store.preferences.among(ids)) == 3
    ask("submit_scores", batch_id=batch, scores=[{"item_id": "i1", "skip": True}])
    assert services.store.preferences.among(ids) == []


def test_why_there_is_nothing_to_judge_is_told(services: Services, ask: ToolCaller) -> None:
    assert "no run is stored" in ask("get_judging_batch", limit=1)["next_step"]
    (run_id,) = add_runs(services, run("t1"))
    nobody = ask("get_judging_batch", limit=1, filter={"agent": "unknow", "outcome": "success"})["next_step"]
    assert "no stored run matches agent='unknow', outcome='success'" in nobody
    assert "; no run has the agent 'unknow' (did you mean 'unknown'?), they have 'unknown'; curation.source" in nobody
    judged(ask, {"skip": True})
    assert (
        "'assistant' has judged all runs by rubric 'default', of 1 run"
        in ask("get_judging_batch", limit=1)["next_step"]
    )
    ask("forget", id=run_id, dry_run=False)
    gone = ask("get_judging_batch", limit=1, trajectory_ids=[run_id])["next_step"]
    assert "all of these runs were forgotten" in gone


def test_mining_that_finds_nothing_names_the_reason_and_the_next_call(services: Services, ask: ToolCaller) -> None:
    (run_id,) = add_runs(services, run("t1"))
    ask("forget", id=run_id, dry_run=False)
    result = ask("record_preferences", source="mined", trajectory_ids=[run_id])
    assert [(one["reason"], one["count"]) for one in result["skipped"]] == [("forgotten", 1)]
    assert result["next_step"].startswith(
        "Nothing was recorded: these runs were forgotten and are never exported again"
    )


def test_a_forgotten_item_is_not_asked_for_again(services: Services, ask: ToolCaller) -> None:
    add_runs(services, run("t1"), run("t2"))
    batch = services.store.judging.get(ask("get_judging_batch", limit=2)["batch_id"])
    ask("forget", id=batch.items[0].trajectory_ids[0], dry_run=False)
    result = ask("submit_scores", batch_id=batch.id, scores=[{"item_id": name, "value": 1} for name in ("i1", "i2")])
    assert (result["accepted"], result["remaining"]) == (1, [])
    assert "[run_changed]" in result["rejected"][0]["reason"]
    assert len(services.store.scores.of_trajectory(batch.items[1].trajectory_ids[0])) == 1
    assert "submit" not in result["next_step"]
    assert "i1 can no longer be judged" in result["next_step"]


def test_pairs_are_of_runs_that_export_compares(services: Services, ask: ToolCaller) -> None:
    """Two prompts alike, without an id; one run has other tools: two pairs of two runs each would be one that counts."""
    task = Task(prompt="Find the box.")
    runs = [
        run(None, user(), answer(text), task=task, tools=tools)
        for text, tools in (("a", (GO,)), ("b", (GO,)), ("c", ()))
    ]
    ids = add_runs(services, *runs)
    for more in ({}, {"trajectory_ids": ids}):
        batch = ask("get_judging_batch", limit=9, mode="pairwise", rater=f"r{len(more)}", **more)
        pairs = {frozenset(item.trajectory_ids) for item in services.store.judging.get(batch["batch_id"]).items}
        assert pairs == {frozenset(ids[:2])}
        group = ask("get_judging_batch", limit=9, mode="group", rater=f"r{len(more)}", **more)
        assert [len(item.trajectory_ids) for item in services.store.judging.get(group["batch_id"]).items] == [2]


def test_a_preference_on_a_run_that_has_grown_since_does_not_count(services: Services, ask: ToolCaller) -> None:
    begin = (user(), answer("Half."))
    grown, other = add_runs(services, run("t1", *begin, session_id="s1"), run("t1", user(), answer("Whole.")))
    ask("record_preferences", source="person", pairs=[{"chosen": grown, "rejected": other}])
    assert len(services.store.preferences.among([grown, other])) == 1
    assert add_runs(services, run("t1", *begin, user("And?"), answer("All."), session_id="s1")) == [grown]
    assert services.store.preferences.among([grown, other]) == []
    assert services.store.preferences.connected_to([grown]) == []
    assert len(services.store.preferences.page(trajectory_id=grown).items) == 1, "the history is kept"
    ask("record_preferences", source="person", pairs=[{"chosen": grown, "rejected": other}])
    assert len(services.store.preferences.among([grown, other])) == 1


def test_true_and_false_are_no_numbers(services: Services, ask: ToolCaller) -> None:
    add_runs(services, run("t1"))
    exports = [
        {"kind": "sft", "scorer": "rules", "min_score": True},
        {"kind": "dpo", "margin": False},
        {"kind": "dpo", "max_pairs_per_task": True},
        {"kind": "sft", "validation_share": False},
    ]
    said = ask.refused("export_dataset", *({"name": "x", **export} for export in exports))
    said += ask.refused("record_preferences", {"source": "mined", "max_pairs_per_task": True})
    assert all("expected a number, got a boolean" in text for text in said), said
