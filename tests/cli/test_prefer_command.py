"""`quintain prefer`: preferences mined, recorded from a file and listed, from a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quintain.cli.main import app
from quintain.records.trajectory import OutcomeStatus
from quintain.settings import Settings
from quintain.tools.services import Services
from terminal import quintain
from trajectory_runs import answer, run, user


@pytest.fixture
def stored(settings: Settings, services: Services) -> tuple[Path, list[str]]:
    """A home with a good run and two bad ones of one task, all with the label `mine`."""
    kinds = [("one", OutcomeStatus.SUCCESS), ("two", OutcomeStatus.FAILURE), ("three", OutcomeStatus.FAILURE)]
    runs = [run("t", user(), answer(text), status=status, tags=("mine",)) for text, status in kinds]
    added = services.store.trajectories.add_many(runs, services.clock())
    return settings.home, [run.id for run in added]


def test_values_are_mined_listed_and_frozen(stored: tuple[Path, list[str]]) -> None:
    home, (good, *bad) = stored
    done = quintain("prefer", "mine", "--tag", "mine", "--mode", "all_pairs", home=home)
    assert done.returncode == 0, done.stderr
    assert "2 preferences recorded\n" in done.stdout
    lines = quintain("prefer", "list", home=home).stdout.splitlines()
    assert {line.split("  ")[1] for line in lines} == {f"{good} > {run} by 1" for run in bad}
    assert all(line.endswith("(mined from outcome)") for line in lines)
    one = json.loads(quintain("prefer", "list", "--run", bad[0], "--json", home=home).stdout)
    assert [item["source"] for item in one["items"]] == ["mined"]
    frozen = quintain("export", "dpo", "pairs", "--all", "--pairs", "recorded", "--json", home=home)
    assert json.loads(frozen.stdout)["rows"] == 2


def test_a_file_of_pairs_is_recorded_and_every_bad_line_told(stored: tuple[Path, list[str]], tmp_path: Path) -> None:
    home, (a, b, c) = stored
    path = tmp_path / "pairs.jsonl"
    lines = [
        json.dumps({"chosen": a, "rejected": b, "rater": "Ada"}),
        '{"chosen": "half',
        "",
        "[1]",
        json.dumps({"a": b, "b": c, "better": "tie", "rater": "Ada"}),
        json.dumps({"chosen": a, "rejected": "traj-none"}),
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    done = quintain("prefer", "record", str(path), home=home)
    assert done.returncode == 0, done.stderr
    assert "2 preferences recorded, 1 tie among those recorded or changed" in done.stdout
    assert "left out: unknown_run 1: pairs[2]: no stored run 'traj-none'" in done.stdout
    assert "note: line 2 is not JSON" in done.stdout
    assert "note: line 4 is list, expected an object" in done.stdout
    assert f"{min(b, c)} = {max(b, c)}  (person:Ada)" in quintain("prefer", "list", home=home).stdout
    path.write_text(lines[-1], encoding="utf-8")
    nothing = quintain("prefer", "record", str(path), home=home)
    assert nothing.returncode == 2, "a file of which nothing comes in is no success"
    assert "0 preferences recorded\n" in nothing.stdout
    assert "quintain runs lists them" in nothing.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mine"], "[empty_filter] expected a choice of runs, got none; name them with --agent"),
        (["mine", "--all", "--mode", "outside-in"], "best_worst, forks, got 'outside-in' (did you mean 'outside_in'?)"),
        (["record", "no-such.jsonl"], "got nothing at"),
        (["list", "--run", "traj-none"], "expected the id of a stored trajectory, got 'traj-none'"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    stored: tuple[Path, list[str]], arguments: list[str], said: str
) -> None:
    done = CliRunner().invoke(app, ["prefer", *arguments, "--home", str(stored[0])])
    assert done.exit_code == 2
    assert said in done.stderr
