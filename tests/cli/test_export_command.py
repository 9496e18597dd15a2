"""`quintain export`: runs to a dataset and to another trainer's folder, from a terminal."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from quintain.cli.main import command
from quintain.exporters.registry import EXPORTERS
from quintain.records.dataset import DatasetKind
from quintain.records.trajectory import Actor, OutcomeStatus, Step
from quintain.settings import Settings
from quintain.tools.services import Services
from terminal import quintain
from trajectory_runs import answer, run, user


def export(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return quintain("export", *arguments, home=home)


@pytest.fixture
def stored(settings: Settings, services: Services) -> Path:
    """A home with three good runs and one of unknown outcome, all with the label `mine`."""
    runs = [run(f"t{i}", user(f"Find {i}."), answer(f"Box {i}."), tags=("mine",)) for i in range(3)]
    runs.append(run("t3", user("Find 3."), answer("Box 3."), tags=("mine",), status=OutcomeStatus.UNKNOWN))
    services.store.trajectories.add_many(runs, services.clock())
    return settings.home


def test_runs_become_a_dataset_and_a_folder_where_one_asked_for_it(stored: Path, tmp_path: Path) -> None:
    out = tmp_path / "for" / "openai"
    done = export("sft", "boxes", "--tag", "mine", "--format", "openai", "--out", str(out), home=stored)
    assert done.returncode == 0, done.stderr
    assert "3 rows of kind sft (train 3)" in done.stdout
    assert "left out: outcome_unknown 1" in done.stdout
    assert f"format openai: {out}" in done.stdout
    lines = [json.loads(line) for line in (out / "train.jsonl").read_text().splitlines()]
    assert [line["messages"][-1]["content"] for line in lines] == ["Box 0.", "Box 1.", "Box 2."]
    assert (out / "SHA256SUMS").is_file()
    again = export("sft", "boxes", "--all", "--out", str(out), home=stored)
    assert (again.returncode, "exists, and an export never changes" in again.stderr) == (2, True)
    every = export("sft", "boxes", "--all", "--keep", "success", "--keep", "unknown", "--json", home=stored)
    assert (json.loads(every.stdout)["rows"], json.loads(every.stdout)["format"]) == (4, "quintain")
    nobody = quintain("export-agent", "nobody", home=stored)
    assert (nobody.returncode, "[not_found]" in nobody.stderr) == (2, True), "without --format the request is complete"


def test_ready_made_rows_become_a_dataset(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "2 + 2?", "a": "4"}\n')
    names = ("--column", "prompt=q", "--column", "response=a")
    done = export("sft", "sums", "--rows", str(path), *names, "--format", "trl", "--json", home=stored)
    assert done.returncode == 0, done.stderr
    row = json.loads((Path(json.loads(done.stdout)["path"]) / "train.jsonl").read_text())
    assert [message["content"] for message in row["messages"]] == ["2 + 2?", "4"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("stf", "x", "--all"),
            "expected one of sft, dpo, kto, grpo, text, reward, prm, benchmark, got 'stf' (did you mean 'sft'?)",
        ),
        (("sft", "x"), "--tag or --text, take every stored run with --all"),
        (("sft", "x", "--all", "--format", "tlr"), "expected a format, got 'tlr' (did you mean 'trl'?)"),
        (("text", "x", "--rows", "r.txt", "--format", "openai"), "supports the kinds dpo, sft, got 'text'"),
        (
            ("sft", "x", "--all", "--keep", "good"),
            "--keep: expected one of success, failure, error, truncated, unknown, got 'good'",
        ),
        (("sft", "x", "--rows", "r.jsonl", "--column", "prompt"), "must be NAME=COLUMN"),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_valid(arguments: tuple[str, ...], said: str, stored: Path) -> None:
    done = export(*arguments, home=stored)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_help_names_every_format_and_kind() -> None:
    helps = {parameter.name: parameter.help for parameter in command("export").params}  # type: ignore[attr-defined]
    assert [known.name for known in EXPORTERS if known.name not in helps["format"]] == []
    assert [kind for kind in get_args(DatasetKind) if kind not in helps["kind"]] == []


def test_rows_that_a_format_leaves_out_are_counted_with_the_format(settings: Settings, services: Services) -> None:
    said = run("t0", user("Find."), answer("Box."))
    thought = run("t1", user("Find it."), Step(actor=Actor.AGENT, thought="Hm."))
    services.store.trajectories.add_many([said, thought], services.clock())
    done = export("sft", "boxes", "--all", "--format", "openai", home=settings.home)
    assert "2 rows of kind sft\n" in done.stdout
    assert "format openai: 1 of the 2 rows (train 1) in " in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("rows.csv", b"frage,antwort\nWo?,Da.\n", "such as --column prompt=VALUE --column response=VALUE"),
        ("rows.csv", "prompt,response\nGrüße?,Da.\n".encode("cp1252"), None),
        ("rows.xlsx", b"PK\x03\x04 broken", None),
    ],
    ids=["unknown columns", "another encoding", "a broken workbook"],
)
def test_columns_are_advised_where_a_file_has_fields(
    stored: Path, tmp_path: Path, name: str, content: bytes, advice: str | None
) -> None:
    (tmp_path / name).write_bytes(content)
    done = export("sft", "x", "--rows", str(tmp_path / name), home=stored)
    assert (done.returncode, "[no_rows]" in done.stderr) == (2, True), done.stderr
    assert advice in done.stderr if advice else "--column" not in done.stderr


def test_the_form_of_a_name_is_described_in_words(stored: Path) -> None:
    for line in (("export", "sft", "Köln Bot", "--all"), ("register", "Köln Bot", "--model", "starter")):
        done = quintain(*line, home=stored)
        assert "[invalid_input] NAME: expected a name of 1 to 100 letters from a to z, digits, dots" in done.stderr
        assert "A-Z" not in done.stderr
