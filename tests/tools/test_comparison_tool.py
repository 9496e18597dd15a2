"""Comparing by tool: what makes agents comparable, leaderboards, lineage, pictures."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluation.test_comparison import evaluated
from mcp_client import ToolCaller
from quintain.errors import InvalidInput, NotFound
from quintain.evaluation.reports.figures import forest_plot
from quintain.evaluation.reports.report import as_markdown, comparison_report
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.evaluation import Evaluation
from quintain.records.trajectory import AgentInfo, OutcomeStatus, Trajectory
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.library import list_library
from quintain.tools.evaluation.comparison import compare_agents, comparison_of
from quintain.tools.evaluation.leaderboard import environment_leaderboard, leaderboard_uri
from quintain.tools.evaluation.rollouts import evaluate_agent
from quintain.tools.jobs.figures import figure_text
from quintain.tools.jobs.jobs import get_job
from quintain.tools.jobs.plots import plot_job
from quintain.tools.services import Services, open_services
from quintain.tools.training.agents import resolve_agent
from terminal import quintain
from tiny_models import save_tiny_model
from tools.stored_records import add_runs, error_of
from trajectory_runs import answer, run, user
from trajectory_runs import call as step_of


@pytest.fixture
def services(settings: Settings) -> Iterator[Services]:
    """Services with agents a, b and c, each trained from the one before."""
    opened = open_services(settings)
    parent = None
    for name in ("a", "b", "c"):
        agent = Agent(name=name, model=ModelRef(source="folder", path="/m"), parent=parent, job_id=f"job-{name}")
        parent = opened.store.agents.add(agent, opened.clock()).id
    yield opened
    opened.close()


def stored(services: Services, name: str, *outcomes: str, suite: str = "suite", **changes: object) -> Evaluation:
    found = services.store.evaluations.page(limit=200).items
    made = evaluated(name, *outcomes, suite=suite).model_copy(update={"id": f"eval-{name}{len(found)}", **changes})
    return services.store.evaluations.add(made, services.clock())


def test_agents_without_a_common_suite_are_told_the_call_that_makes_them_comparable(services: Services) -> None:
    warm = Sampling(temperature=0.5)
    stored(services, "a", "0101", suite="one", max_turns=5, seed=3, opponent_id="agent:c@1", sampling=warm)
    stored(services, "b", "011", suite="two")
    error = error_of(compare_agents, services, ["a", "b"])
    assert (error.code, "share 3 of 4 tasks" in error.message) == ("different_suites", True)
    call = (
        "evaluate_agent(agent='agent:b@1', environment='test/env', split='held_out', n_tasks=4, repeats=1, seed=3, "
        "max_turns=5, opponent='agent:c@1', sampling={'temperature': 0.5})"
    )
    assert call in error.message
    # What one of them did elsewhere since is no reason to send the other there.
    stored(services, "a", "11", suite="three", environment="elsewhere")
    again = error_of(compare_agents, services, ["a", "b"]).message
    assert ("share 3 of 4 tasks" in again, call in again) == (True, True), again


def test_an_agent_is_listed_with_its_result_on_most_tasks_and_of_those_the_newest(services: Services) -> None:
    for outcomes in ("0000", "0111", "1"):
        stored(services, "a", outcomes)
    listed = {one["name"]: one["results"] for one in list_library(services, "agents").items}
    assert [(one["success_rate"], one["n"]) for one in listed["a"]] == [(0.75, 4)]
    assert listed["b"] == []


def test_an_agent_that_was_not_measured_is_sent_where_the_other_one_was(services: Services) -> None:
    error = error_of(compare_agents, services, ["a", "b"])
    assert error.code == "not_evaluated"
    assert "evaluate_agent(agent='agent:a@1', environment='quintain/inventory')" in error.message
    stored(services, "a", "0101", max_turns=5, seed=3)
    call = "evaluate_agent(agent='agent:b@1', environment='test/env', split='held_out', n_tasks=4, repeats=1, seed=3, max_turns=5)"
    assert call in error_of(compare_agents, services, ["a", "b"]).message


def test_tasks_that_were_played_alike_are_no_proof_that_there_is_no_difference(services: Services) -> None:
    """11 of 20 tasks differ: 5 points would take some hundred tasks, and the interval is wide."""
    for name, outcomes in (("a", "1" * 6 + "0" * 14), ("b", "0" * 6 + "1" * 5 + "0" * 9)):
        alike = evaluated(name, outcomes, digests="abcdefghijklmnopqrsS"[:19] + "s")
        services.store.evaluations.add(alike, services.clock())
    found = compare_agents(services, ["a", "b"])
    (pair,) = found.comparisons
    assert (pair.n_distinct, pair.tasks_for_5_points, pair.significant) == (19, None, False)
    points = f"between {100 * pair.ci_low:+.1f} and {100 * pair.ci_high:+.1f} points (95 %)"
    assert found.verdict == f"No difference is significant; b - a is {points}."


def test_of_several_agents_the_fewest_evaluations_make_them_comparable(services: Services) -> None:
    stored(services, "a", "0101", suite="one")
    for name in ("b", "c"):
        stored(services, name, "0111", suite="two", seed=5)
    message = error_of(compare_agents, services, ["a", "b", "c"]).message
    assert "in common (a: 4 held-out tasks of test/env, seed 0; b: 4 held-out tasks of test/env, seed 5; c:" in message
    assert (
        "Run evaluate_agent(agent='agent:a@1', environment='test/env', split='held_out', n_tasks=4, repeats=1, seed=5), then"
        in message
    )


def test_a_measured_model_is_compared_by_any_reference_to_it(services: Services) -> None:
    folder = services.settings.inbox_dir / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    assert resolve_agent(services, "mine").id == "agent:mine@1"
    stored(services, "a", "0001")
    stored(services, "mine", "1111")
    assert [row.agent for row in compare_agents(services, ["a", "./mine"]).leaderboard] == ["./mine", "a"]


def test_evaluations_on_a_file_are_found_by_the_path_that_was_given_and_the_lead_is_no_more_than_it_is(
    services: Services,
) -> None:
    """a is far below both others, which differ in 4 of 40 tasks: McNemar's exact p of 4 against 0 is 0.125."""
    (services.settings.home / "inbox" / "quiz.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n')
    played = f"quintain/tasks?file={services.settings.home}/inbox/quiz.jsonl"
    for name, outcomes in {"a": "0" * 40, "b": "1" * 36 + "0" * 4, "c": "1" * 40}.items():
        stored(services, name, outcomes, environment=played)
    found = compare_agents(services, ["a", "b", "c"], environment="quintain/tasks?file=quiz.jsonl")
    assert found.verdict.startswith("c leads, not significantly before b; 2 of 3 differences are significant")
    assert environment_leaderboard(services, "quintain/tasks?file=quiz.jsonl").rows[0].agent == "agent:c@1"
    stored(services, "b", "1" * 40, environment=played)
    tied = compare_agents(services, ["a", "b", "c"], environment="quintain/tasks?file=quiz.jsonl")
    assert tied.verdict.startswith("b and c lead; 2 of 3 differences are significant")


def test_agents_of_recorded_runs_are_compared_on_the_tasks_that_both_did(services: Services) -> None:
    """Task 0 was tried twice by `gpt`: the newer run counts. Task 9 is that of one, and task 8 has no outcome of the other."""
    done = {"claude": "11110", "gpt": "10001"}
    runs = [
        recorded_run(agent, n, verdict == "1") for agent, outcomes in done.items() for n, verdict in enumerate(outcomes)
    ]
    add_runs(
        services, *runs, recorded_run("gpt", 0, False), recorded_run("gpt", 9, True), recorded_run("claude", 8, None)
    )
    found = compare_agents(services, ["claude", "gpt"])
    (pair,) = found.comparisons
    assert (pair.n_tasks, pair.only_a, pair.only_b, pair.difference) == (5, 4, 1, pytest.approx(-0.6))
    assert found.environment == "recorded runs"
    assert "of each task the newest with an outcome (1 older attempt left out)" in found.notes[-1]
    unknown = [recorded_run(name, 0, None) for name in ("mute", "deaf")]
    add_runs(services, *unknown)
    with pytest.raises(
        InvalidInput, match=r"\[different_suites\].*mute 0, deaf 0.*score_trajectories\(scorer=\.\.\., filter"
    ):
        compare_agents(services, ["mute", "deaf"])
    with pytest.raises(NotFound, match="expected a registered agent, got 'mute'"):
        compare_agents(services, ["mute", "nobody"])
    with pytest.raises(InvalidInput, match=r"different_suites.*a recorded outcome of each agent"):
        compare_agents(services, ["claude", "gemini"])
    with pytest.raises(NotFound, match="expected a registered agent, got 'x'"):
        compare_agents(services, ["x", "y"])


def recorded_run(agent: str, task: int, success: bool | None) -> Trajectory:
    status = {True: OutcomeStatus.SUCCESS, False: OutcomeStatus.FAILURE, None: OutcomeStatus.UNKNOWN}[success]
    return run(f"t{task}", user(), answer(f"{agent}: {status}"), status=status, agent=AgentInfo(name=agent))


def test_agents_without_a_common_split_of_a_dataset_are_told_so_too(services: Services) -> None:
    stored(services, "a", "01", suite="one", dataset_id="ds-1", environment="dataset:ds-1")
    stored(services, "b", "01", suite="two")
    message = error_of(compare_agents, services, ["a", "b"]).message
    assert "evaluate_agent(agent='agent:b@1', split='held_out', n_tasks=2, dataset_id='ds-1'" in message


def test_a_stored_comparison_is_read_again_by_its_id_with_its_verdict_and_all_flips(services: Services) -> None:
    stored(services, "a", "0" * 30)
    stored(services, "c", "1" * 30)
    new = compare_agents(services, ["a", "c"])
    again = compare_agents(services, [new.comparison_id])
    assert again.comparison_id == new.comparison_id
    assert again.comparisons == new.comparisons
    assert compare_agents(services, ["a", "c"]).comparison_id == new.comparison_id, "asked for again"
    assert compare_agents(services, ["c", "a"]).comparison_id != new.comparison_id
    assert (len(new.flips), len(again.flips), again.flips_count) == (8, 30, 30)
    assert [origin.evaluation_id for origin in again.lineage] == ["eval-a0", "eval-c1"]
    assert again.verdict.startswith("c leads; the difference is significant")
    with pytest.raises(InvalidInput, match="expected two or more agents, or the id of one comparison, got"):
        compare_agents(services, ["a"])
    for alone in ({"n_tasks": 10}, {"repeats": 2}):
        with pytest.raises(InvalidInput, match="`n_tasks` and `repeats` are of sequential comparisons"):
            compare_agents(services, ["a", "c"], **alone)
    _, listed = list_library(services, "comparisons").items
    wanted = {"id": new.comparison_id, "agents": ["c", "a"], "significant": 1, "flips": 30}
    assert {name: listed[name] for name in wanted} == wanted


def test_a_leaderboard_takes_the_best_of_each_agent_on_the_suite_that_most_have_run(services: Services) -> None:
    stored(services, "a", "0" * 30)
    stored(services, "a", "1" * 3 + "0" * 27)
    stored(services, "b", "1" * 30)
    stored(services, "c", "11", suite="other")
    board = environment_leaderboard(services, "test/env")
    assert [(row.rank, row.agent, row.success_rate, row.group) for row in board.rows] == [
        (1, "agent:b@1", 1.0, "a"),
        (2, "agent:a@1", 0.1, "b"),
    ]
    assert (board.suite_hash, board.n_evaluations, board.n_tasks, board.other_suites) == ("suite", 3, 30, ("other",))
    assert [row.agent for row in environment_leaderboard(services, "test/env", "other").rows] == ["agent:c@1"]
    with pytest.raises(NotFound, match="expected the hash of a suite of 'test/env', got 'none'; it has other, suite"):
        environment_leaderboard(services, "test/env", "none")
    with pytest.raises(NotFound, match="no agent was evaluated in 'moon'"):
        environment_leaderboard(services, "moon")


def test_suites_by_which_an_evolution_chose_stay_out_and_other_suites_have_names(services: Services) -> None:
    stored(services, "a", "01")
    for name in ("a", "b", "c"):  # most agents ran it, and each round was chosen by it
        stored(services, name, "0111", suite="inner", purpose="selection", seed=77)
    stored(services, "b", "011", suite="other", seed=7, max_turns=4)
    stored(services, "c", "10")
    board = environment_leaderboard(services, "test/env")
    assert (board.suite_hash, board.name, len(board.rows)) == ("suite", "held_out, 2 tasks, seed 0", 2)
    (other,) = board.others
    assert (other.name, other.suite_hash) == ("held_out, 3 tasks, seed 7, at most 4 turns", "other")
    assert (other.agents, other.newest) == (1, services.store.evaluations.of_agent("agent:b@1")[0].id)
    chosen = compare_agents(services, ["a", "c"]).comparisons[0]
    assert chosen.n_tasks == 2, "a measurement is compared before the suite of a selection"


def test_a_comparison_offers_its_picture_and_two_runs_of_one_task(services: Services) -> None:
    ends = [stored(services, "a", "0110"), stored(services, "c", "1110")]
    found = compare_agents(services, ["a", "c"])
    (flip,) = found.flips
    assert (flip.trajectory_failed, flip.trajectory_solved) == tuple(one.results[0].trajectory_id for one in ends)
    for wanted in (
        f"plot_job(job_id='{found.comparison_id}')",
        f"get_trajectory(trajectory_id='{flip.trajectory_solved}') and get_trajectory(trajectory_id='{flip.trajectory_failed}')",
    ):
        assert wanted in found.next_step
    picture = plot_job(services, found.comparison_id)
    assert picture.png.startswith(b"\x89PNG")
    assert "c - a: +25.0" in picture.text


def test_show_adds_the_picture_and_two_runs_of_one_task_side_by_side(services: Services, ask: ToolCaller) -> None:
    def acted(word: str, status: OutcomeStatus) -> str:
        steps = (user("Find it."), step_of(word, result="there" * 100), answer(word))
        return add_runs(services, run("t1", *steps, status=status))[0]

    runs = {"a": acted("left", OutcomeStatus.FAILURE), "c": acted("right", OutcomeStatus.SUCCESS)}
    for name, outcome in (("a", "0"), ("c", "1")):
        (episode,) = evaluated(name, outcome).results
        stored(services, name, outcome, results=(episode.model_copy(update={"trajectory_id": runs[name]}),))

    shown = ask.raw("compare_agents", agents=["a", "c"], show=True)
    text, image = shown.content
    assert base64.b64decode(image.data).startswith(b"\x89PNG")
    assert shown.structured_content == json.loads(text.text)
    contrast = shown.structured_content["contrast"]
    assert [contrast[key]["trajectory_id"] for key in ("failed", "solved")] == [runs["a"], runs["c"]]
    call, result, message = contrast["solved"]["lines"]
    assert (call, message) == ("call: right {}", "message: right")
    assert len(result) <= 240
    assert "data" in contrast["notice"]
    assert "plot_job" not in shown.structured_content["next_step"]
    printed = quintain("compare", "a", "c", "--show", "--json", home=services.settings.home)
    assert json.loads(printed.stdout)["contrast"] == contrast


def test_agents_that_solve_nothing_are_not_advised_to_take_more_of_the_same_tasks(services: Services) -> None:
    for name in ("a", "c"):
        stored(services, name, "0000")
    found = compare_agents(services, ["a", "c"])
    assert found.next_step.startswith("No agent solved a task")
    assert found.contrast is None


def test_an_environment_stands_in_one_part_of_a_uri() -> None:
    assert leaderboard_uri("quintain/math?level=2") == "leaderboard://quintain%2Fmath%3Flevel%3D2"


UNMEASURABLE: list[tuple[dict[str, Any], str]] = [
    ({}, "got neither"),
    ({"environment": "quintain/inventory", "dataset_id": "said"}, "expected a benchmark to play"),
    ({"dataset_id": "said", "repeats": 2}, "on a dataset nothing is played"),
    ({"dataset_id": "said", "sampling": Sampling(temperature=1.0)}, "decoded greedily"),
    ({"dataset_id": "said", "split": "all"}, "expected a split of dataset"),
    ({"dataset_id": "said", "split": "validation"}, "its splits: {'train': 1}"),
]


def test_a_sample_of_a_dataset_is_announced_with_the_number_of_all_rows(waiting: Services) -> None:
    ids = add_runs(waiting, *(run(f"t{n}", user(f"Hello {n}."), answer("Done.")) for n in range(3)))
    export_dataset(waiting, "sft", "said", trajectory_ids=ids)
    asked = {"dataset_id": "said", "split": "train"}
    some, whole = (evaluate_agent(waiting, "starter", **asked, n_tasks=n).warnings for n in (2, 3))
    assert ([str(one) for one in some], whole) == (
        ["[rows_sampled] It measures 2 of 3 rows; `n_tasks=3` takes all."],
        (),
    )


def test_what_cannot_be_measured_is_refused_before_a_job_begins(services: Services) -> None:
    ids = add_runs(services, run("t", user(), answer("Done.")))
    export_dataset(services, "sft", "said", trajectory_ids=ids)
    for arguments, words in UNMEASURABLE:
        with pytest.raises(InvalidInput, match=words):
            evaluate_agent(services, "starter", **arguments)
    assert services.store.jobs.page().items == ()


def test_a_comparison_has_its_lineage_and_a_curve_of_the_parents_that_were_measured_on_the_suite(
    services: Services,
) -> None:
    """b was not compared, and stands on the way from a to c; 3, 8 and 12 of 12 tasks."""
    stored(services, "a", "1" * 3 + "0" * 9)
    between = stored(services, "b", "1" * 8 + "0" * 4)
    stored(services, "c", "1" * 12, sampling=Sampling(temperature=0.5))
    found = compare_agents(services, ["a", "c"], {"test/env": 1})
    assert "temperature 0.5" in found.notes[0]
    assert found.notes[0] in found.next_step
    assert found.resource_uri == f"comparison://{found.comparison_id}"
    comparison = comparison_of(services, found.comparison_id)
    a, c = comparison.lineage
    assert (a.agent_id, a.ancestors, a.job_id) == ("agent:a@1", (), "job-a")
    assert (c.agent_id, c.ancestors, c.job_id) == ("agent:c@1", ("agent:b@1", "agent:a@1"), "job-c")
    (curve,) = comparison.curves
    assert (curve.agent, curve.suite_hash, curve.n_tasks) == ("c", "suite", 12)
    assert [(point.place, point.agent_id, point.success_rate) for point in curve.points] == [
        (0, "agent:a@1", 0.25), (1, "agent:b@1", 8 / 12), (2, "agent:c@1", 1.0),
    ]  # fmt: skip
    assert (curve.points[1].ci_low, curve.points[1].evaluation_id) == (between.rate.ci_low, between.id)
    figure = forest_plot(comparison)
    assert [tick["label"] for tick in figure["panels"][-1]["ticks"]] == ["before training", "1", "after"]
    text = figure_text(figure).splitlines()[-1]
    assert text.startswith("  c: 0.25 -> 1 "), "the success along the training"
    page = as_markdown(comparison_report(comparison))
    assert "| c | 1 | agent:b@1 | 66.7% \\[34.9%, 90.1%\\] | 12 | the compared one |" in page


def test_rounds_of_a_job_stand_on_the_way_to_its_agent_on_the_suite_that_most_of_them_ran(services: Services) -> None:
    """As an evolution leaves them: start and result compared on one suite, the rounds chosen by another."""
    stored(services, "a", "0" * 10, suite="choosing")
    for number, solved in enumerate((4, 3, 9), 1):
        made = Agent(
            name="r", model=ModelRef(source="folder", path="/m"), parent="agent:a@1", job_id=f"job-e/0{number}-train"
        )
        version = services.store.agents.add(made, services.clock()).version
        stored(services, "r", "1" * solved + "0" * (10 - solved), suite="choosing", agent_id=f"agent:r@{version}")
    result = Agent(name="e", model=ModelRef(source="folder", path="/m"), parent="agent:a@1", job_id="job-e")
    services.store.agents.add(result, services.clock())
    stored(services, "a", "0" * 20, suite="final")
    stored(services, "e", "1" * 15 + "0" * 5, suite="final")
    comparison = comparison_of(services, compare_agents(services, ["a", "e"]).comparison_id)
    (curve,) = comparison.curves
    assert (curve.suite_hash, curve.n_tasks) == ("choosing", 10)
    assert [(point.place, point.success_rate) for point in curve.points] == [(0, 0.0), (1, 0.4), (2, 0.3), (3, 0.9)]
    shorter = curve.model_copy(update={"agent": "s", "points": curve.points[:2]})
    panel = forest_plot(comparison.model_copy(update={"curves": (curve, shorter)}))["panels"][-1]
    assert [tick["label"] for tick in panel["ticks"]] == ["before training", "1", "2", "3"], "the end of one of them"


def test_agents_of_no_common_way_have_no_curve(services: Services) -> None:
    for name in ("x", "y"):
        services.store.agents.add(Agent(name=name, model=ModelRef(source="folder", path="/m")), services.clock())
        stored(services, name, "0101")
    assert comparison_of(services, compare_agents(services, ["x", "y"]).comparison_id).curves == ()


@pytest.mark.usefixtures("jobs_in_process")
def test_a_sequential_comparison_plays_until_it_is_decided_and_the_same_call_returns_it(
    services: Services, tmp_path: Path
) -> None:
    folder = save_tiny_model(tmp_path / "tiny", hidden=16)
    tiny = Agent(name="tiny", model=ModelRef(source="folder", path=str(folder)), sampling=Sampling(max_new_tokens=2))
    tiny = services.store.agents.add(tiny, services.clock())
    names = [tiny.id or "", "expert"]
    asked: dict[str, Any] = {"environment": "quintain/inventory", "sequential": True, "n_tasks": 100}
    started = compare_agents(services, names, **asked)
    assert (started.comparison_id, started.comparisons) == (None, ())
    job = get_job(services, str(started.job_id))
    assert (job.status, job.label) == (
        "succeeded",
        "compare tiny and expert in quintain/inventory: at most 100 tasks, held_out",
    )
    found = compare_agents(services, names, **asked, show=True)
    assert (found.sequential.decision, found.sequential.n_tasks) == ("difference", 16)
    assert found.next_step.startswith("agent:expert@1 is better, decided after 16 tasks of 100: +100.0%")
    assert found.comparisons[0].significant
    assert found.png is not None
    report = as_markdown(comparison_report(comparison_of(services, str(found.comparison_id))))
    assert "decided after 16 tasks of 100" in report
    with pytest.raises(NotFound):  # a rate that was stopped on purpose is on no leaderboard
        environment_leaderboard(services, "quintain/inventory")
    for stopped in (names, [item.evaluation_a for item in found.comparisons] + names[1:]):
        with pytest.raises(InvalidInput, match=r"stopped_early.*evaluate_agent\(.*sequential=True"):
            compare_agents(services, stopped, "quintain/inventory")  # its number of tasks depends on its results
    for agents, changes, code in (
        (["a", "b", "c"], {}, "two_agents"),
        (["eval-1", "expert"], {}, "not_playable"),
        (names, {"environment": None}, "not_playable"),
    ):
        assert error_of(compare_agents, services, agents, **asked | changes).code == code


def test_a_leaderboard_rates_the_players_of_a_game(services: Services) -> None:
    """a wins 3 of 4 against b: odds of 3, so 400 log10(3) = 190.8 points, around a mean of 1500."""
    ids = {name: f"agent:{name}@1" for name in "abc"}
    stored(services, "a", "0000", suite="one", opponent_id=ids["a"])  # against itself: no rating
    stored(services, "a", "1110", suite="two", opponent_id=ids["b"])
    board = environment_leaderboard(services, "test/env")
    assert [(row.agent, row.elo, row.games) for row in board.ratings] == [(ids["a"], 1595.4, 4), (ids["b"], 1404.6, 4)]
    assert board.ratings[0].ci_low < 1595.4 < board.ratings[0].ci_high
    stored(services, "b", "10?", suite="three", opponent_id=ids["c"])
    stored(services, "b", "00", suite="three", opponent_id=ids["a"])
    found = environment_leaderboard(services, "test/env").ratings
    assert {row.agent: row.games for row in found} == {ids["a"]: 6, ids["b"]: 8, ids["c"]: 2}
    assert found[0].agent == ids["a"]
