"""`quintain judge`: at the terminal, by files, and the agreement of raters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from quintain.cli.main import app
from quintain.tools.services import Services
from terminal import quintain
from trajectory_runs import NOW, answer, run, user

EVIL = "\x1b[2J\x1b]0;title\x07"


@pytest.fixture
def ids(services: Services) -> list[str]:
    runs = [run(f"t{n}", user(), answer(f"Answer {n}. {EVIL}")) for n in range(10)]
    added = services.store.trajectories.add_many(runs, NOW)
    return [one.id for one in added]


def judge(home: Path, *arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(app, ["judge", *arguments, "--home", str(home)], input=typed)


def values(services: Services, ids: list[str], scorer: str = "people") -> list[float | None]:
    found = services.store.scores.by_scorers([scorer], ids)
    return [score.value for scores in found.values() for score in scores]


ITEM = "5\n2\n\n\nfine\n"
"""Two criteria, no correction (two lines), a note."""


def test_a_person_judges_at_the_terminal_until_they_stop(home: Path, services: Services, ids: list[str]) -> None:
    done = judge(home, "--limit", "9", typed=ITEM * 9)
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    assert done.output.count("stored, 0 rejected, 0 open") == 2
    # 0.6 * 1 + 0.4 * 0.25
    assert values(services, ids) == [pytest.approx(0.7)] * 9
    stopped = judge(home, "--rater", "ann", typed=f"{ITEM}9\nx\ncan\nq\n")
    assert "Please choose one of: 1, 2, 3, 4, 5, cannot tell" in stopped.output
    assert "1 stored, 0 rejected, 4 open." in stopped.output
    assert judge(home, "--rater", "bo", typed="").output.count("0 stored") == 1


def test_a_person_stops_or_corrects_after_the_scores_which_are_kept(
    home: Path, services: Services, ids: list[str]
) -> None:
    """Both criteria are answered: 0.6 * 1 + 0.4 * 0.75."""
    stopped = judge(home, "--limit", "2", typed="5\n4\nq\n")
    assert "1 stored, 0 rejected, 1 open." in stopped.output
    assert values(services, ids) == [pytest.approx(0.9)]
    assert "0 stored" in judge(home, "--limit", "2", "--rater", "bo", typed="5\nq\n").output
    corrected = judge(home, "--limit", "1", "--rater", "cy", typed="5\n4\n0\n\nfine\n0\nBetter said.\n")
    assert "a correction needs both" in corrected.output
    assert "Correction stored as traj-" in corrected.output
    assert values(services, ids) == [pytest.approx(0.9)] * 2


def test_a_batch_goes_out_and_its_answers_come_in_as_files(
    home: Path, services: Services, ids: list[str], tmp_path: Path
) -> None:
    batch = json.loads(judge(home, "--judge", "assistant", "--limit", "2", "--json").output)
    answers = {
        "batch_id": batch["batch_id"],
        "scores": [{"item_id": "i1", "value": 0.5}, {"item_id": "i2", "value": 5}],
    }
    file = tmp_path / "answers.json"
    file.write_text(json.dumps(answers), encoding="utf-8")
    result = json.loads(judge(home, str(file), "--json").output)
    assert (result["accepted"], result["rejected"][0]["item_id"]) == (1, "i2")
    assert values(services, ids, "judge") == [0.5]
    piped = judge(home, "-", typed=json.dumps({**answers, "scores": [{"item_id": "i2", "skip": True}]}))
    assert "1 stored, 0 rejected, 0 open." in piped.output


def test_submitted_answers_are_the_persons_own(home: Path, services: Services, ids: list[str]) -> None:
    batch = json.loads(judge(home, "--limit", "1", "--json").output)
    answers = json.dumps([{"item_id": "i1", "value": 1, "rationale": "good"}])
    done = quintain("submit", batch["batch_id"], answers, home=home)
    assert done.returncode == 0, done.stderr
    (stored,) = services.store.scores.by_scorers(["people"], ids).values()
    assert stored[0].feedback == "good"


def test_the_agreement_of_raters_is_a_table(home: Path, ids: list[str]) -> None:
    assert "nothing to compare" in judge(home, "--agreement").output
    assert json.loads(judge(home, "--agreement", "--json").output) is None
    for name, typed in (("ann", ("1\n1", "5\n5")), ("bo", ("1\n1", "5\n5"))):
        judge(
            home, "--rater", name, "--limit", "2", "--text", "Answer 1", typed=f"{typed[0]}\n\n\n\n{typed[1]}\n\n\n\n"
        )
        judge(home, "--rater", name, "--limit", "2", "--text", "Answer 2", typed=f"{typed[1]}\n\n\n\n")
    found = judge(home, "--agreement").output
    assert "person:ann" in found
    assert "1.000" in found
    assert json.loads(judge(home, "--agreement", "--json").output)["pairs"][0]["kappa"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rubric", "codding"), ["codding", "did you mean 'coding'"]),
        (("--rubric", "none.yaml"), ["cannot find 'none.yaml'"]),
        (("none.json",), ["cannot read 'none.json'"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    home: Path, ids: list[str], arguments: tuple[str, ...], words: list[str]
) -> None:
    done = judge(home, *arguments)
    assert done.exit_code == 2
    assert all(word in done.output for word in words), done.output


def test_remedies_name_commands(home: Path) -> None:
    output = judge(home, typed="").output
    assert "no run is stored; record or import runs, or let an agent make some with quintain collect starter" in output
    assert "collect_rollouts" not in output
