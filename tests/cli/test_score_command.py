"""`quintain score`: from a terminal, with exit statuses and words that lead on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from fake_endpoint import profile, says, serving, write_profiles
from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.records.trajectory import OutcomeStatus, Task, Trajectory
from quintain.settings import Settings
from quintain.tools.labels.score_tally import FEWEST_ALIKE
from quintain.tools.services import Services
from terminal import quintain
from trajectory_runs import NOW, answer, run, user


@pytest.fixture
def runs(services: Services) -> None:
    runs = [
        Trajectory(task=Task(id=f"t{n}", prompt="6 * 7?", metadata={"answer": "42"}), steps=(user(), answer(text)))
        for n, text in enumerate(["The answer is 42.", "The answer is 41."])
    ]
    services.store.trajectories.add_many([*runs, Trajectory(task=Task(id="none"), steps=(user(), answer("Hi.")))], NOW)


def score(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return quintain("score", *arguments, home=home)


def test_runs_are_scored_and_those_that_cannot_be_are_told(runs: None, home: Path) -> None:
    done = score("answer", "--all", "--audit", home=home)
    assert done.returncode == 0, done.stderr
    for words in (
        "answer: 2 runs scored, 1 not",
        "mean 0.500, 0.000 to 1.000 (2)",
        "unscored 1: the task states no",
        "audit: ",
    ):
        assert words in done.stdout
    mix = score("answer=1,helloagents=1", "--all", "--lower-bound", "--cap", "0.5", "--json", home=home)
    assert json.loads(mix.stdout)["scorer"] == "mix(answer=1, helloagents=1, lower_bound, cap=0.5)"


def test_a_part_that_ranks_no_run_is_noted(services: Services, home: Path) -> None:
    outcomes = [OutcomeStatus.SUCCESS, *[OutcomeStatus.FAILURE] * (FEWEST_ALIKE - 1)]
    runs = [run(f"t{n}", user(), answer("Yes."), status=status) for n, status in enumerate(outcomes)]
    services.store.trajectories.add_many(runs, NOW)
    shown = score("outcome=1,length=1", "--all", home=home).stdout
    assert f"note: part 'length' is 1 in all {FEWEST_ALIKE} runs and ranks none of them" in shown


@pytest.mark.usefixtures("jobs_in_process")
def test_a_job_that_scores_is_followed_to_its_end(runs: None, settings: Settings, home: Path) -> None:
    with serving(lambda asked, before: says("Five of five.")) as endpoint:
        write_profiles(settings, profile("fake", endpoint.url))
        done = score("judge", "--all", "--judge", "endpoint:fake", "--json", home=home)
        view = json.loads(done.stdout)
        assert (view["kind"], view["status"], done.returncode) == ("judge", "failed", 1), done.stderr
        assert view["error"]["code"] == "nothing_judged"
        detached = score("judge", "--all", "--judge", "endpoint:fake", "--detach", home=home)
    assert (detached.returncode, detached.stdout.startswith("job-")) == (0, True), detached.stderr


def test_what_is_wrong_is_told_with_exit_status_2(runs: None, home: Path) -> None:
    for arguments, words in (
        (("answer",), "take every stored run with --all"),
        (("anser", "--all"), "did you mean 'answer'"),
        (("answer=x", "--all"), "must be NAME=WEIGHT"),
        (("answer=1,answer=2", "--all"), "each name once"),
        (("judge", "--all", "--judge", "endpoint:none"), "[no_endpoint]"),
        (("rules", "--all", "--profile", "nope"), "profile_not_found"),
        (("replay", "--all"), "none of these 3 runs can be replayed"),
    ):
        done = score(*arguments, home=home)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
        assert done.stdout == ""
