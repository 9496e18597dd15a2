"""Preferences through a real client: stated, mined, imported, recorded once, and frozen into datasets of pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_client import ToolCaller
from quintain.datasets.rows import read_rows
from quintain.errors import NotFound
from quintain.records.labels.preference import Preference
from quintain.records.score import StepScore
from quintain.records.trajectory import OutcomeStatus, Step, Task, Trajectory
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from tools.stored_records import add_runs, add_scores, new_score, write_rows
from trajectory_runs import NOW, answer, call, run, user

S, F, U = OutcomeStatus.SUCCESS, OutcomeStatus.FAILURE, OutcomeStatus.UNKNOWN


def _said(task_id: str | None, text: str, status: OutcomeStatus = U, **fields: Any) -> Trajectory:
    return run(task_id, user(), answer(text), status=status, tags=("k",), **fields)


def _recorded(ask: ToolCaller, **arguments: Any) -> dict[str, Any]:
    return ask("record_preferences", **arguments)


def _exported(ask: ToolCaller, kind: str = "dpo", **arguments: Any) -> dict[str, Any]:
    return ask("export_dataset", **({"kind": kind, "name": "d", "filter": {"tags": ["k"]}} | arguments))


def _refused(ask: ToolCaller, **arguments: Any) -> str:
    return ask.refused("export_dataset", arguments)[0]


def _rows(result: dict[str, Any]) -> list[Any]:
    return list(read_rows(Path(result["path"]), "train", kind=result["kind"]))


def _manifest(result: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads((Path(result["path"]) / "manifest.json").read_text(encoding="utf-8")))


def _steps(*tools: str) -> list[Step]:
    return [call(tool, result=f"seen by {tool}") for tool in tools]


def test_a_person_and_an_assistant_say_which_run_is_better(services: Services, ask: ToolCaller) -> None:
    a, b, c = add_runs(services, _said("t", "one"), _said("t", "two"), _said("t", "three"))
    pairs = [
        {"a": a, "b": b, "better": "b", "reason": "mail me at ada.lovelace@gmail.com"},
        {"a": a, "b": c, "better": "tie"},
    ]
    result = _recorded(ask, source="person", pairs=[pair | {"rater": "Ada"} for pair in pairs])
    assert (result["created"], result["ties"], result["skipped"]) == (2, 1, [])
    assert "export_dataset(kind='dpo'" in result["next_step"]
    assert _recorded(ask, source="assistant", pairs=[{"chosen": b, "rejected": a, "margin": 0.5}])["created"] == 1
    said = services.store.preferences.among([a, b, c])
    assert [(p.chosen, p.source, p.rater, p.margin) for p in said] == [
        (b, "person", "person:Ada", None),
        (None, "person", "person:Ada", None),
        (b, "assistant", "assistant", 0.5),
    ]
    assert "ada.lovelace@gmail.com" not in said[0].reason


def test_what_is_no_preference_is_skipped_with_its_reason_and_the_rest_is_recorded(
    services: Services, ask: ToolCaller
) -> None:
    a, b, same, other, elsewhere, free, tools = add_runs(
        services,
        _said("t", "one"),
        _said("t", "two"),
        _said("t", "one", episode_key="again"),
        _said("u", "two"),
        _said("t", "two", task=Task(id="t", prompt="Find the red box.", environment="another")),
        _said(None, "one", task=Task(prompt="p")),
        _said(None, "two", task=Task(prompt="p"), tools=()),
    )
    wrong = [
        ("not_a_pair", {"a": a, "b": b}),
        ("not_a_pair", {"a": a, "b": b, "better": "left"}),
        ("not_a_pair", {"a": a, "b": b, "better": "a", "chosen": a, "rejected": b}),
        ("not_a_pair", {"chosen": a, "rejected": a}),
        ("not_a_pair", {"chosen": a, "rejected": b, "step": True}),
        ("not_a_pair", {"chosen": a, "rejected": b, "note": 1}),
        ("not_a_pair", "a is better"),
        ("unknown_run", {"chosen": a, "rejected": "traj-none"}),
        ("different_tasks", {"chosen": a, "rejected": other}),
        ("different_tasks", {"chosen": a, "rejected": elsewhere}),
        ("different_tasks", {"chosen": free, "rejected": tools}),
        ("equal_sides", {"chosen": a, "rejected": same}),
        ("equal_sides", {"a": a, "b": same, "better": "tie"}),
        ("no_shared_prefix", {"chosen": a, "rejected": b, "step": 3}),
    ]
    result = _recorded(ask, source="person", pairs=[*(pair for _, pair in wrong), {"chosen": a, "rejected": b}])
    expected: dict[str, int] = {}
    for reason, _ in wrong:
        expected[reason] = expected.get(reason, 0) + 1
    assert {skipped["reason"]: skipped["count"] for skipped in result["skipped"]} == expected
    assert result["created"] == 1
    details = {skipped["reason"]: skipped["detail"] for skipped in result["skipped"]}
    assert details["unknown_run"].startswith("pairs[7]: no stored run 'traj-none'")
    assert "part at step 0, not at step 3" in details["no_shared_prefix"]


def test_who_contradicts_himself_is_told_and_who_contradicts_others_is_counted(
    services: Services, ask: ToolCaller
) -> None:
    a, b, c = add_runs(services, _said("t", "one"), _said("t", "two"), _said("t", "three"))
    ada = {"a": a, "b": b, "better": "a", "rater": "Ada"}
    assert _recorded(ask, source="person", pairs=[ada])["findings"] == {}
    assert _recorded(ask, source="person", pairs=[ada])["findings"] == {"unchanged": 1}
    turned = _recorded(ask, source="person", pairs=[ada | {"better": "b"}])
    assert (turned["created"], turned["findings"]["replaced"]) == (0, 1)
    assert turned["findings"]["changes"] == [
        f"{min(a, b)} and {max(a, b)}: person:Ada stated {a} before and {b} now; the newer statement counts"
    ]
    assert [p.chosen for p in services.store.preferences.among([a, b])] == [b]
    bob = _recorded(ask, source="person", pairs=[ada | {"rater": "Bob"}])
    assert (bob["created"], bob["findings"]) == (1, {"raters_disagree": 1})
    both = _recorded(ask, source="assistant", pairs=[{"a": b, "b": c, "better": word} for word in ("a", "b")])
    assert (both["created"], [p.chosen for p in services.store.preferences.among([b, c])]) == (1, [c])
    assert both["findings"]["changes"] == [
        f"{min(b, c)} and {max(b, c)}: first {b}, then {c} in one call; the last statement counts"
    ]


def test_circles_are_told_also_when_earlier_words_close_them(services: Services, ask: ToolCaller) -> None:
    a, b, c, d = add_runs(services, *(_said("t", text) for text in "abcd"))
    _recorded(ask, source="person", pairs=[{"chosen": a, "rejected": b}, {"chosen": b, "rejected": c}])
    closed = _recorded(ask, source="person", pairs=[{"chosen": c, "rejected": a}, {"chosen": d, "rejected": a}])
    (circle,) = closed["findings"]["circles"]
    start = circle.index(a)
    assert circle[start:] + circle[:start] == [a, b, c]
    assert "no order of them fits" in closed["next_step"]


@pytest.mark.parametrize(("mode", "pairs"), [("adjacent", {(0, 1), (1, 2), (2, 3)}), ("best_worst", {(0, 3)})])
def test_each_mode_mines_stored_scores_of_one_task(
    services: Services, ask: ToolCaller, mode: str, pairs: set[tuple[int, int]]
) -> None:
    """Four runs worth .9 .7 .4 .1; one more is unscored, one of another task is alone."""
    ids = add_runs(services, *(_said("t", f"run {i}") for i in range(5)), _said("u", "alone"))
    values = dict(zip(ids, (0.9, 0.7, 0.4, 0.1, None, 0.5), strict=True))
    add_scores(services, *(new_score(i, "rules", v) for i, v in values.items()))
    result = _recorded(ask, source="mined", filter={"tags": ["k"]}, scorer="rules", mode=mode)
    said = services.store.preferences.among(ids)
    assert {(ids.index(p.chosen or ""), ids.index(p.rejected or "")) for p in said} == pairs
    assert all(p.margin == round((values[p.chosen or ""] or 0) - (values[p.rejected or ""] or 0), 9) for p in said)
    assert {(p.source, p.scorer, p.rater) for p in said} == {("mined", "rules", None)}
    left_out = {skipped["reason"]: skipped["count"] for skipped in result["skipped"]}
    assert left_out == {"unscored": 1, "group_of_one": 1} | ({"unpaired": 2} if mode == "best_worst" else {})
    assert result["created"] == len(pairs)


def test_unknown_outcomes_make_no_pair_and_equal_ones_a_tie_where_asked(services: Services, ask: ToolCaller) -> None:
    ids = add_runs(services, _said("t", "a", S), _said("t", "b", S), _said("t", "c", U))
    bare = _recorded(ask, source="mined", trajectory_ids=ids)
    assert (bare["created"], {s["reason"]: s["count"] for s in bare["skipped"]}) == (
        0,
        {"no_contrast": 2, "outcome_unknown": 1},
    )
    assert bare["next_step"].startswith("Nothing was recorded:")
    tied = _recorded(ask, source="mined", trajectory_ids=ids, ties=True)
    assert (tied["created"], tied["ties"]) == (1, 1)
    assert services.store.preferences.among(ids)[0].better == "tie"
    assert "ties" in tied["next_step"]


def test_mining_again_withdraws_what_the_values_now_speak_against(services: Services, ask: ToolCaller) -> None:
    """a .9, b .5, c .1: all three pairs. Then b is worth .1: b > c is none any more, a > b and a > c stand; a person's word too."""
    a, b, c = ids = add_runs(services, *(_said("t", text) for text in "abc"))

    def score(*values: float) -> None:
        add_scores(services, *(new_score(i, "rules", v) for i, v in zip(ids, values, strict=True)))

    score(0.9, 0.5, 0.1)
    _recorded(ask, source="mined", trajectory_ids=ids, scorer="rules", mode="all_pairs")
    _recorded(ask, source="person", pairs=[{"chosen": b, "rejected": c}])
    score(0.9, 0.1, 0.1)
    again = _recorded(ask, source="mined", trajectory_ids=ids, scorer="rules", mode="outside_in")
    assert again["findings"] == {"unchanged": 1, "withdrawn": 1}
    left = {(p.chosen, p.rejected, p.source) for p in services.store.preferences.among(ids)}
    assert left == {(a, b, "mined"), (a, c, "mined"), (b, c, "person")}


def test_forks_that_are_none_any_more_are_withdrawn(services: Services, ask: ToolCaller) -> None:
    """Taking was better than looking, by one run each; two more runs turn it: now looking is."""
    first = [
        run("t", user(), *_steps(tool), answer(tool), status=how, tags=("k",))
        for tool, how in (("take", S), ("look", F))
    ]
    ids = add_runs(services, *first)
    _recorded(ask, source="mined", filter={"tags": ["k"]}, mode="forks")
    more = [("take", F, "no"), ("take", F, "never"), ("look", S, "yes"), ("look", S, "ever")]
    ids += add_runs(
        services, *(run("t", user(), *_steps(tool), answer(text), status=how, tags=("k",)) for tool, how, text in more)
    )
    again = _recorded(ask, source="mined", filter={"tags": ["k"]}, mode="forks")
    assert again["findings"]["withdrawn"] == 1
    said = [p for p in services.store.preferences.among(ids) if p.step == 0]
    assert [services.store.trajectories.get(p.chosen or "").steps[1].actions[0].tool for p in said] == ["look"]


def test_judges_and_people_count_by_the_mean_of_their_newest_verdicts(services: Services, ask: ToolCaller) -> None:
    """Run a: Ada said .2, then .8, Bob .6: mean .7; run b: Ada .5."""
    a, b = add_runs(services, _said("t", "a"), _said("t", "b"))
    given = [(a, "Ada", 0.2), (a, "Ada", 0.8), (a, "Bob", 0.6), (b, "Ada", 0.5)]
    add_scores(services, *(new_score(i, "people", v, rater=f"person:{who}") for i, who, v in given))
    _recorded(ask, source="mined", filter={"tags": ["k"]}, scorer="people")
    (said,) = services.store.preferences.among([a, b])
    assert (said.chosen, said.margin) == (a, pytest.approx(0.2))
    of_one = [score_trajectories(services, f"people@{who}", trajectory_ids=[a, b]) for who in ("Ada", "person:Bob")]
    assert [(one.scored, one.summary.mean) for one in of_one if one.summary] == [(2, pytest.approx(0.65)), (1, 0.6)]
    with pytest.raises(NotFound, match="expected a rater who judged one of these runs, got 'person:Eve'"):
        score_trajectories(services, "people@Eve", trajectory_ids=[a, b])


def test_answers_that_an_imported_log_rejects_are_no_examples_to_imitate(services: Services, ask: ToolCaller) -> None:
    rows = [
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "5", "score_chosen": 9, "score_rejected": 2},
        {"prompt": "3 + 3?", "completion": "7", "label": False},
        {"prompt": "3 + 3?", "completion": "6", "label": True},
        {"prompt": "4 + 4?", "chosen": "8", "rejected": "eight"},
    ]
    write_rows(services.settings.inbox_dir / "pairs.jsonl", *rows)
    imported = ask("import_trajectories", path="pairs.jsonl", tags=["k"])
    assert "record_preferences(source='imported'" in imported["next_step"]
    assert "export_dataset(kind='kto', name='labels', filter={'tags': ['k']}" in imported["next_step"]
    labelled = _exported(ask, "kto", name="labels")
    assert {row.trajectory.steps[-1].message: row.desirable for row in _rows(labelled)} == {
        **dict.fromkeys(("4", "6", "8"), True),
        **dict.fromkeys(("5", "7", "eight"), False),
    }
    mined, grouped = _exported(ask, name="siblings"), _exported(ask, "grpo", name="groups")
    sides = [(row.chosen.steps[-1].message, row.rejected.steps[-1].message) for row in _rows(mined)]
    assert (sorted(sides), grouped["rows"]) == ([("4", "5"), ("6", "7"), ("8", "eight")], 3)
    for by_labels in (labelled, mined, grouped):
        assert by_labels["warnings"] == ["6 runs of unknown outcome: the label in the log decides good or bad"]
    labelled_good = _exported(ask, "sft", name="good")
    assert {row.trajectory.steps[-1].message for row in _rows(labelled_good)} == {"4", "6", "8"}
    plan = ask("plan_training", dataset_id=labelled_good["dataset_id"])
    assert not any("outcome" in note for note in plan["notes"])
    good = next(item["id"] for item in ask("search_trajectories", filter={"text": "eight"})["items"])
    ask("record_trajectory", trajectory_id=good, outcome="success")
    kept = _exported(ask, "sft", outcomes=["unknown", "success"])
    assert {row.trajectory.steps[-1].message for row in _rows(kept)} == {"4", "6", "8", "eight"}
    assert kept["dropped"] == {"rejected_answer": 2}
    sideless = {"steps": [{"actor": "agent", "message": "9"}], "extra": {"preference": {"side": []}}, "tags": ["k"]}
    ask("record_trajectory", trajectory=sideless)
    recorded = _recorded(ask, source="imported", filter={"tags": ["k"]})
    assert (recorded["created"], [(s["reason"], s["count"]) for s in recorded["skipped"]]) == (2, [("no_pair", 3)])
    pairs = _rows(_exported(ask, name="pairs", pairs="imported"))
    assert {(row.chosen.steps[-1].message, row.rejected.steps[-1].message, row.margin) for row in pairs} == {
        ("4", "5", 7.0),
        ("8", "eight", None),
    }
    add_runs(
        services,
        run("u", user("Hello."), answer("yes"), reward=1.0, tags=("u",)),
        run("u", user("Hi."), answer("no"), status=OutcomeStatus.FAILURE, tags=("u",)),
    )
    (unlike,) = _exported(ask, name="unlike", filter={"tags": ["u"]})["warnings"]
    assert unlike.startswith("pairs whose runs begin with different messages: 1 of 1;")
    plain = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}
    (services.settings.inbox_dir / "chat.jsonl").write_text(json.dumps(plain))
    assert "imported" not in ask("import_trajectories", path="chat.jsonl")["next_step"]


def test_a_run_that_one_file_labels_and_another_compares_has_both(services: Services, ask: ToolCaller) -> None:
    for name, row in {
        "labels": {"prompt": "2 + 2?", "completion": "4", "label": False},
        "pairs": {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"},
    }.items():
        write_rows(services.settings.inbox_dir / f"{name}.jsonl", row)
        ask("import_trajectories", path=f"{name}.jsonl", tags=["k"])
    assert _recorded(ask, source="imported", filter={"tags": ["k"]})["created"] == 1
    # The side of a pair is relative, a label is not.
    assert {row.desirable for row in _rows(_exported(ask, "kto"))} == {False}


def test_recorded_pairs_are_frozen_by_majority_with_ties_left_out_and_every_run_counted(
    services: Services, ask: ToolCaller
) -> None:
    """a > b by 2 of 3; c = d; e, f split; g nobody compared; h repeats b's text, so a > h is a > b again."""
    ids = add_runs(services, *(_said("t", text, episode_key=str(i)) for i, text in enumerate("abcdefgb")))
    a, b, c, d, e, f, _g, h = ids
    words = [
        *({"chosen": a, "rejected": b, "rater": who, "margin": m} for who, m in (("Ada", 0.4), ("Bob", 0.2))),
        {"chosen": b, "rejected": a, "rater": "Cy"},
        {"a": c, "b": d, "better": "tie", "rater": "Ada"},
        {"chosen": e, "rejected": f, "rater": "Ada"},
        {"chosen": f, "rejected": e, "rater": "Bob"},
        {"chosen": a, "rejected": h, "rater": "Ada"},
    ]
    assert _recorded(ask, source="person", pairs=words)["created"] == 7
    frozen = _exported(ask, pairs="recorded")
    (row,) = _rows(frozen)
    assert (row.chosen.id, row.rejected.id, row.margin, row.weight) == (a, b, pytest.approx(0.3), pytest.approx(2 / 3))
    assert frozen["dropped"] == {"no_preference": 1, "tie": 2, "raters_disagree": 2, "duplicate": 1}
    assert frozen["trajectories"] + sum(frozen["dropped"].values()) == 8
    assert "raters disagree on 2 of 4 pairs" in frozen["warnings"][0]
    result = _manifest(frozen)["preferences"]
    assert (result["recorded"], result["sources"], result["raters_disagree"]) == (7, {"person": 7}, 2)
    assert result["raters"] == {"person:Ada": 4, "person:Bob": 2, "person:Cy": 1}
    assert _manifest(frozen)["selection"]["pairs"] == "recorded"
    reward = _exported(ask, "reward", pairs="person")
    assert [(r.chosen.id, r.rejected.id) for r in _rows(reward)] == [(a, b)]
    assert "`pairs` is 'person'" in _refused(ask, kind="sft", name="d", pairs="person", trajectory_ids=ids)


def test_sources_are_told_apart_and_mining_now_is_still_the_default(services: Services, ask: ToolCaller) -> None:
    a, b, c = add_runs(services, _said("t", "a", S), _said("t", "b", F), _said("t", "c", F))
    _recorded(ask, source="person", pairs=[{"chosen": b, "rejected": c}])
    _recorded(ask, source="mined", filter={"tags": ["k"]}, mode="best_worst")
    sides = {
        source: {(row.chosen.id, row.rejected.id) for row in _rows(_exported(ask, pairs=source, name=f"d{i}"))}
        for i, source in enumerate(("mined", "recorded", "person", "recorded:mined"))
    }
    assert sides["mined"] == {(a, b), (a, c)}
    assert sides["person"] == {(b, c)}
    assert len(sides["recorded:mined"]) == 1 < len(sides["mined"])
    assert sides["recorded"] == sides["person"] | sides["recorded:mined"]
    default = _exported(ask)
    assert {(row.chosen.id, row.rejected.id) for row in _rows(default)} == sides["mined"]
    assert "preferences" not in _manifest(default)
    assert "no_preference" in _refused(ask, kind="dpo", name="d", pairs="endpoint", trajectory_ids=[a, b])


def test_forks_become_pairs_cut_after_the_step_with_the_beginning_masked(services: Services, ask: ToolCaller) -> None:
    """Both look and see the same; then a takes (and succeeds), b looks again (and fails): step 1."""
    good = run("t", user(), *_steps("look", "take"), answer("done"), status=S, tags=("k",))
    bad = run("t", user(), *_steps("look"), call("look", item="key"), answer("gave up"), status=F, tags=("k",))
    a, b = add_runs(services, good, bad)
    result = _recorded(ask, source="mined", filter={"tags": ["k"]}, mode="forks")
    assert result["created"] == 1
    assert result["examples"][0]["step"] == 1
    (said,) = services.store.preferences.among([a, b])
    assert (said.chosen, said.step, said.margin) == (a, 1, 1.0)
    assert said.reason == "after the same beginning: 1 in 1 run against 0 in 1 run"
    frozen = _exported(ask, pairs="recorded")
    (row,) = _rows(frozen)
    assert (row.chosen.id, row.rejected.id, row.weight) == (a, b, 1.0)
    for side, whole in ((row.chosen, good), (row.rejected, bad)):
        assert [step.train for step in side.agent_steps] == [False, None]
        assert len(side.steps) == 3, "the question, the look, and the step that is compared"
        assert side.steps[1].observations == whole.steps[1].observations
        assert side.steps[2].actions == whole.steps[2].actions
        assert side.steps[2].observations == ()
    assert services.store.datasets.member_ids(frozen["dataset_id"]) == [a, b]
    for format in ("trl", "openai"):
        theirs = _exported(ask, pairs="recorded", format=format)
        (line,) = map(json.loads, (Path(theirs["path"]) / "train.jsonl").read_text(encoding="utf-8").splitlines())
        assert not [warning for warning in theirs["warnings"] if "trained on" in warning]
        prompt, preferred = (
            (line["prompt"], line["chosen"])
            if format == "trl"
            else (line["input"]["messages"], line["preferred_output"])
        )
        assert [message["role"] for message in prompt] == ["user", "assistant", "tool"]
        assert [call["function"]["name"] for message in preferred for call in message["tool_calls"]] == ["take"]


def test_a_step_level_preference_of_runs_that_do_not_share_the_beginning_is_left_out(
    services: Services, ask: ToolCaller
) -> None:
    """As a judge could have stored it without looking: the runs part at step 0."""
    a, b = add_runs(
        services,
        run("t", user(), *_steps("look", "take"), tags=("k",)),
        run("t", user(), *_steps("take", "look"), tags=("k",)),
    )
    services.store.preferences.add_many([Preference(a=a, b=b, better="a", source="agent", step=1)], NOW)
    assert "not_comparable 2" in _refused(ask, kind="dpo", name="d", pairs="agent", filter={"tags": ["k"]})


def test_pairs_split_by_task_and_forgotten_runs_never_come_back(services: Services, ask: ToolCaller) -> None:
    ids = [add_runs(services, _said(f"t{i}", "a"), _said(f"t{i}", "b")) for i in range(40)]
    _recorded(ask, source="person", pairs=[{"chosen": a, "rejected": b} for a, b in ids])
    ask("forget", id=ids[0][0], dry_run=False)
    assert services.store.preferences.among(ids[0]) == []
    frozen = _exported(ask, pairs="recorded", validation_share=0.3)
    assert frozen["rows"] == 39
    assert frozen["dropped"] == {"no_preference": 1}
    parts = {
        name: {row.chosen.task.id for row in read_rows(Path(frozen["path"]), name, kind="dpo")}
        for name in ("train", "validation")
    }
    assert parts["train"] & parts["validation"] == set()
    assert len(parts["validation"]) > 0


def test_step_labels_come_from_stored_verdicts_with_their_parts(services: Services, ask: ToolCaller) -> None:
    """Step 0: Ada .2 (an older word), then 1; Bob .5: mean .75. Step 1: nobody. Step 2: may not be trained on. b: no steps judged."""
    masked = answer("done").model_copy(update={"train": False})
    a, b = add_runs(
        services,
        run("t", user(), *_steps("look", "take"), masked, tags=("k",)),
        run("u", user(), answer("x"), tags=("k",)),
    )

    ada = (
        StepScore(step=0, value=1.0, parts={"relevance": 1.0, "progress": 0.5}),
        StepScore(step=2, value=1.0),
        StepScore(step=9, value=1.0),
    )
    for run_id, who, steps in (
        (a, "Ada", (StepScore(step=0, value=0.2),)),
        (a, "Ada", ada),
        (a, "Bob", (StepScore(step=0, value=0.5, parts={"relevance": 0.5}),)),
        (b, "Bob", ()),
    ):
        add_scores(services, new_score(run_id, "people", 0.5, rater=f"person:{who}", steps=steps))
    frozen = _exported(ask, "prm", scorer="people", curation={"step_labels": "scores"})
    (row,) = _rows(frozen)
    assert row.labels == (0.75, None, None)
    assert row.parts == ({"relevance": 0.75, "progress": 0.5}, None, None)
    assert frozen["dropped"] == {"no_step_labels": 1}
    sampled = _exported(ask, "prm", scorer="people", curation={"step_labels": "scores", "max_rows": 1})
    assert _rows(sampled) == [row]
    said = _refused(ask, kind="prm", name="d", curation={"step_labels": "scores"}, trajectory_ids=[a])
    assert "needs a `scorer`" in said


REFUSED = [
    ({"source": "person"}, "expected `pairs` for source 'person'"),
    ({"source": "person", "pairs": [{}], "filter": {"tags": ["k"]}}, "leave `filter` and `trajectory_ids` out"),
    ({"source": "mined", "filter": {"tags": ["k"]}, "pairs": [{}]}, "leave it out"),
    ({"source": "assistant", "pairs": [{}], "margin": 0.1}, "`margin` goes with source 'mined'"),
    ({"source": "mined"}, "expected exactly one of `filter` and `trajectory_ids`, got both or neither"),
    ({"source": "mined", "filter": {}}, "the filter has no condition"),
    (
        {"source": "mined", "filter": {"tags": ["k"]}, "margin": -0.5},
        "expected margin to be finite and at least 0, got -0.5",
    ),
    (
        {"source": "mined", "filter": {"tags": ["k"]}, "max_pairs_per_task": 0},
        "`max_pairs_per_task` to be at least 1, got 0",
    ),
    ({"source": "mined", "filter": {"tags": ["k"]}, "scorer": "nobody"}, "expected a scorer, got 'nobody'"),
    ({"source": "guess"}, "source"),
]


def test_what_cannot_be_asked_is_refused_with_the_remedy(services: Services, ask: ToolCaller) -> None:
    add_runs(services, _said("t", "a", S))
    result = ask.refused("record_preferences", *(arguments for arguments, _ in REFUSED))
    assert [text for text, (_, said) in zip(result, REFUSED, strict=True) if said not in text] == []
