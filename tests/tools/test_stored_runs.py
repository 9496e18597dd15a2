"""Stored runs as they are shown: one by steps, sorted pages, figures over many, each counted by hand, and answers of bounded length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import quintain
from mcp_client import ToolCaller
from quintain.records.filters import TrajectoryFilter
from quintain.records.score import TAKEN_BACK, Component, StepScore
from quintain.records.trajectory import Outcome, OutcomeStatus, Source, Task, Trajectory, Usage
from quintain.tools.data import trajectories
from quintain.tools.data.forgetting import forget
from quintain.tools.data.tags import tag_trajectories
from quintain.tools.data.trajectories import get_trajectory
from quintain.tools.run_selection import MAX_PAGE_BYTES, count_fitting
from quintain.tools.services import Services, open_services
from quintain.tools.training.methods import METHODS
from quintain.tools.training.model_folders import starter_folder
from tools.stored_records import add_runs, add_scores, error_of, new_score
from trajectory_runs import answer, call, run, user


def test_a_page_of_a_run_has_the_newest_scores_with_the_values_of_its_steps(services: Services) -> None:
    masked = answer("Not mine.").model_copy(update={"train": False})
    (run_id,) = add_runs(services, run("t1", user(), call(item="box"), masked, answer("Done.")))

    def add(value: float | None, rater: str | None = None, **fields: object) -> None:
        add_scores(services, new_score(run_id, "judge", value, rater=rater, **fields))

    add(0.25, feedback="older")
    steps = (StepScore(step=0, value=1.0), StepScore(step=2, value=0.5, feedback="Late."))
    add(0.75, steps=steps, components=(Component(name="process", weight=1, value=0.75),), feedback="x" * 300)
    add(0.5, rater="person:Ada")
    add(None, rater="person:Ada", reason=f"{TAKEN_BACK}: a slip")

    view = get_trajectory(services, run_id, max_chars=100)
    taken_back, newest = view.scores
    assert taken_back["rater"] == "person:Ada"
    assert "value" not in taken_back
    assert newest["value"] == 0.75
    assert newest["parts"] == {"process": 0.75}
    assert newest["feedback"].endswith("[200 more characters]")
    assert newest["steps"] == [{"step": 1, "value": 1.0}, {"step": 3, "value": 0.5, "feedback": "Late."}]
    assert view.masked == (2,)
    later = get_trajectory(services, run_id, first_step=3)
    assert later.scores[1]["steps"] == [{"step": 3, "value": 0.5, "feedback": "Late."}]
    assert later.masked == ()


def test_a_page_of_long_steps_is_cut_to_what_a_client_can_take_and_the_next_one_follows(
    services: Services, ask: ToolCaller
) -> None:
    said = [answer(f"{i} " + "word " * 390) for i in range(200)]
    (run_id,) = add_runs(services, run("t1", user(), *said))
    seen, arguments = 0, {"trajectory_id": run_id, "limit": 200}
    while arguments:
        page = ask("get_trajectory", **arguments)
        assert len(json.dumps(page)) < 32_000
        assert page["first_step"] == seen
        seen += len(page["trajectory"]["steps"])
        more = seen < page["total_steps"]
        assert (f"first_step={seen}, limit=200" in page["next_step"], page["truncated"]) == (more, more)
        arguments = {**arguments, "first_step": seen} if more else {}
    assert seen == 201
    trusted = open_services(services.settings, trusted=True)
    assert len(get_trajectory(trusted, run_id, limit=200).trajectory["steps"]) == 200, (
        "a terminal shows what was asked for"
    )
    trusted.close()


def test_tags_are_added_and_removed_but_not_those_that_say_where_a_run_comes_from(services: Services) -> None:
    a, b, c = add_runs(
        services, *(run(f"t-{name}", user(), answer(name), tags=("rollout", name)) for name in ("a", "b", "c"))
    )
    done = tag_trajectories(services, add=["gold", " x y"], remove=["a"], trajectory_ids=[a, b])
    assert (done.matched, done.changed) == (2, 2)
    assert find(services, "gold") == {a: ("rollout", "gold", " x y"), b: ("rollout", "b", "gold", " x y")}
    assert find(services, "a") == {}
    again = tag_trajectories(services, add=["gold"], filter=TrajectoryFilter(tags=("rollout",)))
    assert (again.matched, again.changed) == (3, 1)
    assert set(find(services, "gold")) == {a, b, c}
    assert tag_trajectories(services, remove=["gold"], filter=TrajectoryFilter(tags=("gold",))).changed == 3
    forget(services, a, dry_run=False)
    assert (tag_trajectories(services, add=["later"], trajectory_ids=[b, a]).matched, len(find(services, "later"))) == (
        1,
        1,
    )
    for code, message, arguments in (
        ("invalid_input", "expected tags in `add`, `remove` or both, got none", {}),
        ("invalid_input", "got b in both", {"add": ["b"], "remove": ["b"]}),
        ("bad_tag", "got rollout, which says where a run comes from", {"remove": ["rollout"]}),
        ("bad_tag", "add[1] is 'live', which is reserved", {"add": ["x", "live"]}),
        ("not_found", "traj-9", {"add": ["x"], "trajectory_ids": ["traj-9"]}),
        (
            "empty_filter",
            "would select everything",
            {"add": ["x"], "trajectory_ids": None, "filter": TrajectoryFilter()},
        ),
    ):
        error = error_of(tag_trajectories, services, **{"trajectory_ids": [b], **arguments})
        assert (error.code, message in error.message) == (code, True), error.message
    assert find(services, "x") == {}


def find(services: Services, tag: str) -> dict[str, tuple[str, ...]]:
    """Return the runs with a tag, each with its tags in the order of the document."""
    return {one.id: one.tags for one in services.store.trajectories.iterate(TrajectoryFilter(tags=(tag,))) if one.id}


def test_runs_are_sorted_by_the_mean_of_their_raters_newest_verdicts_page_by_page(
    services: Services, ask: ToolCaller
) -> None:
    """Means: a (0.2 + 0.6) / 2, b 0.9 after 0.1, c 0.5; d's value was taken back, e was judged by another rubric, f never."""
    rewards = dict(zip("abcdef", (3.0, None, 1.0, 2.0, None, None), strict=True))
    runs = [run(f"t-{name}", user(), answer(name), reward=reward, tags=(name,)) for name, reward in rewards.items()]
    a, b, c, d, e, _ = add_runs(services, *runs)
    for run_id, value, rater, rubric in (
        (e, 1.0, "assistant", "steps"),
        (a, 0.2, "assistant", "default"),
        (a, 0.6, "endpoint:x", "default"),
        (b, 0.1, "assistant", "default"),
        (b, 0.9, "assistant", "default"),
        (d, 0.8, "assistant", "default"),
        (d, None, "assistant", "default"),
        (c, 0.5, "assistant", "default"),
    ):
        add_scores(services, new_score(run_id, "judge", value, rater=rater, rubric=rubric))

    first = ask("search_trajectories", sort="judge", limit=2)
    assert [(item["id"], item["score"]) for item in first["items"]] == [(b, 0.9), (c, 0.5)]
    assert first["count"] is None
    assert "sort='judge'" in first["next_step"]
    second = ask("search_trajectories", sort="judge", limit=2, cursor=first["next_cursor"])
    assert [(item["id"], item["score"]) for item in second["items"]] == [(a, 0.4)]
    assert second["next_cursor"] is None

    worst = ask("search_trajectories", sort="-judge:default", filter={"outcome": "success"})
    assert [item["id"] for item in worst["items"]] == [a, c, b]
    assert [item["id"] for item in ask("search_trajectories", sort="reward")["items"]] == [a, d, c]
    assert [item["id"] for item in ask("search_trajectories", sort="judge", filter={"tags": ["c"]})["items"]] == [c]
    (refused,) = ask.refused("search_trajectories", {"sort": "rules"})
    assert refused.startswith(
        "[nothing_to_sort] expected runs with stored values of 'rules' to sort by, got none; score"
    )
    (unrewarded,) = ask.refused("search_trajectories", {"sort": "reward", "filter": {"outcome": "unknown"}})
    assert "'reward' to sort by, got none; sort by the values of a scorer; score" in unrewarded
    (refused,) = ask.refused("search_trajectories", {"sort": "jugde"})
    assert "did you mean" in refused
    (refused,) = ask.refused("search_trajectories", {"sort": "-judge", "cursor": first["next_cursor"]})
    assert refused.startswith("[bad_cursor]")
    add_scores(services, new_score(a, "rules", 0.25))
    assert ask("search_trajectories", sort="rules")["items"][0]["score"] == pytest.approx(0.25)


def test_scores_of_an_imported_log_are_chosen_by_their_name(services: Services, ask: ToolCaller) -> None:
    """Feedback 1, 0 and 0.25, the last scored 0.75 here since; a rating of 1 to 5 is not a score."""
    logged: tuple[dict[str, float], ...] = (
        {"user-feedback": 1.0, "rating": 5.0},
        {"user-feedback": 0.0},
        {"user-feedback": 0.25, 'a"b': 0.5},
        {},
    )
    runs = [run(f"t-{i}", user(), answer(str(i)), status=OutcomeStatus.UNKNOWN, tags=("k",)) for i in range(4)]
    up, down, later, _ = add_runs(
        services,
        *(one.model_copy(update={"outcome": Outcome(scores=scores)}) for one, scores in zip(runs, logged, strict=True)),
    )
    add_scores(services, new_score(later, "user-feedback", 0.75))
    found = ask("search_trajectories", sort="user-feedback")["items"]
    assert [(item["id"], item["score"]) for item in found] == [(up, 1.0), (later, 0.75), (down, 0.0)]
    kto = {"kind": "kto", "name": "d", "filter": {"tags": ["k"]}}
    frozen = ask("export_dataset", **kto, scorer="user-feedback")
    assert (frozen["rows"], frozen["dropped"]) == (3, {"unscored": 1})
    assert ask("export_dataset", **kto, scorer='a"b')["dropped"] == {"unscored": 3}
    (refused,) = ask.refused("export_dataset", kto | {"scorer": "rating"})
    assert "expected the scores 'rating' of imported logs in 0..1, got 5..5" in refused
    (refused,) = ask.refused("export_dataset", kto | {"scorer": "feedback"})
    assert refused.endswith('imported logs have scores a"b, rating, user-feedback')


def test_a_search_counts_what_matches_however_short_the_page(
    ask: ToolCaller, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_runs(services, *(run(f"t{n}", tags=("even",) if n % 2 == 0 else ()) for n in range(9)))
    even = ask("search_trajectories", filter={"tags": ["even"]}, limit=2)
    assert (len(even["items"]), even["count"]) == (2, 5)
    assert ask("search_trajectories", filter={"tags": ["odd"]})["count"] == 0
    assert ask("search_trajectories", limit=2, cursor=even["next_cursor"])["count"] is None
    monkeypatch.setattr(trajectories, "_MOST_COUNTED", 8)
    assert ask("search_trajectories", limit=2)["count"] is None, "more than a call counts"
    assert ask("search_trajectories", filter={"tags": ["even"]}, limit=2)["count"] == 5


def test_runs_are_found_by_the_ids_of_their_task_and_session_which_a_search_for_text_names(
    ask: ToolCaller, services: Services
) -> None:
    sessions = {"G-0013": "S-75", "G-0014": "S-75", "G-0015": "S-76"}
    first, second, _ = add_runs(
        services, *(run(task, user(task[-1]), answer(), session_id=session) for task, session in sessions.items())
    )
    for asked, found in (({"session_id": "S-75"}, {first, second}), ({"task_id": "G-0013"}, {first})):
        assert {item["id"] for item in ask("search_trajectories", filter=asked)["items"]} == found
    both = {"session_id": "S-75", "task_id": "G-0014"}
    assert [item["id"] for item in ask("search_trajectories", filter=both)["items"]] == [second]
    nothing = ask("search_trajectories", filter={"text": "S-75"})
    assert nothing["items"] == []
    assert "search_trajectories(filter={'session_id': 'S-75'})" in nothing["next_step"]
    with_options = ask("search_trajectories", filter={"environment": "test/env?mode=direct"})
    assert "without its options: search_trajectories(filter={'environment': 'test/env'})" in with_options["next_step"]


def _attempt(task: str, n: int, status: OutcomeStatus, *calls: tuple[str, bool]) -> Trajectory:
    steps = [call(tool, is_error=is_error, n=n) for tool, is_error in calls]
    return run(task, user(), *steps, answer(), status=status, episode_key=f"{task}-{n}", tags=("mine",))


def test_a_summary_counts_tools_attempts_and_outcomes(services: Services, ask: ToolCaller) -> None:
    """Tasks a (2 of 3), b (1 of 2 with a verdict) and c (0 of 1), by hand; unknown is no failure."""
    good, bad, unknown = OutcomeStatus.SUCCESS, OutcomeStatus.FAILURE, OutcomeStatus.UNKNOWN
    add_runs(
        services,
        _attempt("a", 1, good, ("look", False), ("look", True)),
        _attempt("a", 2, good, ("look", False)),
        _attempt("a", 3, bad, ("send", True)),
        _attempt("b", 1, good),
        _attempt("b", 2, bad, ("send", False)),
        _attempt("b", 3, unknown, ("send", True)),
        _attempt("c", 1, bad),
        run("other"),
    )
    found = ask("search_trajectories", filter={"tags": ["mine"]}, limit=1, summary=True)
    figures = found["summary"]
    assert (len(found["items"]), figures["runs"], figures["tasks"]) == (1, 7, 3)
    assert figures["outcomes"] == {"success": 3, "failure": 3, "unknown": 1}
    assert (figures["rate"]["successes"], figures["rate"]["n"]) == (3, 6)
    assert figures["tools"] == {
        "look": {"calls": 3, "errors": 1, "error_rate": pytest.approx(1 / 3), "runs": 2, "successes": 2},
        "send": {"calls": 3, "errors": 2, "error_rate": pytest.approx(2 / 3), "runs": 3, "successes": 0},
    }
    every = {one["k"]: (one["value"], one["n"]) for one in figures["pass_hat_k"]}
    assert every == {
        1: (pytest.approx((2 / 3 + 1 / 2 + 0) / 3), 3),
        2: (pytest.approx((1 / 3 + 0) / 2), 2),
        3: (pytest.approx(0), 1),
    }
    any_of = {one["k"]: one["value"] for one in figures["pass_at_k"]}
    assert any_of == {1: pytest.approx(every[1][0]), 2: pytest.approx(1), 3: pytest.approx(1)}
    assert (figures["cost_usd"], figures["labels"]) == (None, None)
    assert ask("search_trajectories", limit=1)["summary"] is None


def test_errors_of_logs_without_a_mark_for_them_are_unknown(services: Services, ask: ToolCaller) -> None:
    """No result of an OpenAI chat can be marked; that of an Anthropic one can, so that its other tools have none."""
    marked, unmarked = Source(format="anthropic_messages"), Source(format="openai_chat")
    add_runs(
        services,
        run("a", user(), call("mail", is_error=True), call("look"), source=marked),
        run("b", user(), call("send"), call("look"), source=unmarked),
    )
    tools = ask("search_trajectories", filter={"since": "1970-01-01T00:00:00Z"}, summary=True)["summary"]["tools"]
    assert {name: (one["errors"], one["error_rate"]) for name, one in tools.items()} == {
        "mail": (1, 1.0),
        "look": (0, 0.0),
        "send": (None, None),
    }


def test_a_summary_divides_what_all_turns_state_by_the_successes(services: Services, ask: ToolCaller) -> None:
    """A cost that one turn does not state is not taken for nothing."""
    told = answer("4").model_copy(update={"usage": Usage(input_tokens=30, output_tokens=5), "extra": {"cost_usd": 0.5}})
    runs = [
        run(f"t{n}", user(), told, status=status, tags=("paid",))
        for n, status in enumerate((OutcomeStatus.SUCCESS, OutcomeStatus.FAILURE))
    ]
    add_runs(services, *runs)
    figures = ask("search_trajectories", filter={"tags": ["paid"]}, summary=True)["summary"]
    assert (figures["input_tokens"], figures["output_tokens"], figures["cost_usd"]) == (60, 10, 1.0)
    assert (figures["tokens_per_success"], figures["cost_per_success"]) == (70, 1.0)
    row = {"row": {"cost_usd": 0.25, "language": "de"}}
    whole = run("t8", user(), answer("1"), answer("2"), status=OutcomeStatus.SUCCESS, tags=("paid",))
    add_runs(services, whole.model_copy(update={"extra": row}))
    figures = ask("search_trajectories", filter={"tags": ["paid"]}, summary=True)["summary"]
    assert (figures["cost_usd"], figures["cost_per_success"]) == (1.25, 0.625), "a column of a row is of the whole run"
    add_runs(services, run("t9", user(), answer("free"), tags=("paid",)))
    figures = ask("search_trajectories", filter={"tags": ["paid"]}, summary=True)["summary"]
    assert (figures["input_tokens"], figures["cost_usd"], figures["cost_per_success"]) == (None, None, None)


def test_a_summary_has_the_confusion_of_labels(services: Services, ask: ToolCaller) -> None:
    """Rows: bug (bug, bug, spam), spam (spam, none of the labels)."""
    given = (("bug", "Bug"), ("bug", "bug"), ("bug", "spam"), ("spam", "spam"), ("spam", "I think it is spam"))
    add_runs(
        services,
        *(
            run(None, user(), answer(said), task=Task(id=f"t{n}", prompt="Which?", metadata={"answer": right}))
            for n, (right, said) in enumerate(given)
        ),
    )
    figures = ask("search_trajectories", summary=True)["summary"]
    assert figures["labels"] == {
        "bug": {"answered": {"bug": 2, "spam": 1}, "precision": 1.0, "recall": pytest.approx(2 / 3), "f1": 0.8},
        "spam": {"answered": {"spam": 1, "(other)": 1}, "precision": 0.5, "recall": 0.5, "f1": 0.5},
    }
    assert (figures["accuracy"], figures["macro_f1"]) == (0.6, 0.65)
    add_runs(
        services,
        *(
            run(
                None,
                user(),
                answer(said),
                task=Task(id=f"q{n % 2}", prompt="?", metadata={"answer": str(n % 2)}),
                tags=("quiz",),
            )
            for n, said in enumerate("0110")
        ),
    )
    quiz = ask("search_trajectories", filter={"tags": ["quiz"]}, summary=True)["summary"]
    assert quiz["labels"] is None, "two tasks, tried twice, have answers of their own"


MOST = MAX_PAGE_BYTES + 2_000
"""Bytes of a whole answer: the page, its frame and `next_step`."""


def pages(ask: ToolCaller, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """The entries of all pages, each page within the bound in both channels."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        result = ask.raw(tool, **arguments, **({"cursor": cursor} if cursor else {}))
        assert not result.is_error, result.content[0].text
        assert len(result.content[0].text.encode()) < MOST
        found += result.structured_content["items"]
        cursor = result.structured_content["next_cursor"]
        if cursor is None:
            return found


def test_long_lists_end_where_an_answer_would_be_too_long_and_go_on_by_the_cursor(
    services: Services, ask: ToolCaller
) -> None:
    """200 runs of long names, and 12 agents with long prompts."""
    names = [f"t{i}" for i in range(200)]
    long = (run(name, user(f"case {name} " + "ä" * 150), answer(), tags=(f"batch-{'x' * 60}",)) for name in names)
    add_runs(services, *long)
    assert 20 < len(ask("search_trajectories", limit=200)["items"]) < 200
    assert [one["task_id"] for one in pages(ask, "search_trajectories", limit=200)] == names[::-1]
    for i in range(12):
        ask("register_agent", name=f"clerk-{i}", model="starter", system_prompt=f"{i} " * 4000)
    agents = pages(ask, "list_library", kind="agents", limit=200)
    assert [one["name"] for one in agents] == [*(f"clerk-{i}" for i in range(11, -1, -1)), "starter"]
    assert [one["method"] for one in pages(ask, "list_library", kind="methods")] == ["*", *METHODS]
    (refused,) = ask.refused("list_library", {"kind": "methods", "cursor": "x"})
    assert refused.startswith("[bad_cursor] expected a cursor of this list, got 'x'")


def test_stored_things_are_found_by_words_of_their_ids_and_names(ask: ToolCaller) -> None:
    for name in ("clerk-a", "clerk-b", "100%_clerk"):
        ask("register_agent", name=name.replace("%", "x"), model="starter", description=name)

    def named(kind: str, text: str) -> list[str]:
        return [one["name"] for one in ask("list_library", kind=kind, text=text)["items"]]

    assert named("agents", "CLERK-") == ["clerk-b", "clerk-a"]
    assert named("agents", "clerk-b @1") == ["clerk-b"]
    assert named("agents", "%") == [], "a percent sign is a character, not a pattern"
    assert named("datasets", "clerk") == []
    (starter,) = ask("list_library", kind="agents", text="starter@1")["items"]
    files = [path for path in Path(starter_folder()).rglob("*") if path.is_file()]
    assert starter["size_bytes"] == sum(path.stat().st_size for path in files)
    (refused,) = ask.refused("list_library", {"kind": "calibrations", "text": "x"})
    assert "leave it out and page by cursor" in refused


def test_an_entry_longer_than_a_page_comes_alone() -> None:
    assert count_fitting([]) == 0
    assert count_fitting(["a" * MAX_PAGE_BYTES, "b"]) == 1
    assert count_fitting(["b", "a" * MAX_PAGE_BYTES]) == 1
    # Each entry has two quotes and a comma; an umlaut has two bytes.
    assert count_fitting(["ä" * 60] * 1000) == MAX_PAGE_BYTES // 123


def test_no_answer_about_an_agent_names_the_folder_of_the_installation(ask: ToolCaller) -> None:
    registered = ask.raw("register_agent", name="clerk", model="starter")
    assert registered.structured_content["agent"]["model"]["path"] == "starter"
    listed = ask.raw("list_library", kind="agents")
    assert {one["model"]["path"] for one in listed.structured_content["items"]} == {"starter"}
    plan = ask.raw("plan_training", method="grpo", environment="quintain/inventory")
    texts = [str(one.structured_content) + one.content[0].text for one in (registered, listed, plan)]
    texts += [ask.read(uri).text for uri in ("agent://agent:clerk@1", "lineage://agent:clerk@1")]
    assert not [text for text in texts if str(Path(quintain.__file__).parent) in text]
