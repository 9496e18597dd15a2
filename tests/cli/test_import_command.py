"""`quintain import`: what a person reads of it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from quintain.cli.commands.imports import show_import
from quintain.records.imports import ImportedFile
from quintain.tools.results import ImportResult
from terminal import quintain

FOLDER = "-Users-somebody-projects-a-very-long-name-of-a-repository"


def _result(*names: str) -> ImportResult:
    counts = {"trajectories": 1, "steps": 12_345, "actions": 12_345, "observations": 12_345}
    files = tuple(
        ImportedFile(file=f"{FOLDER}/{name}", format="claude_code", confidence=0.95, unknown={"summary": 1}, **counts)
        for name in names
    )
    return ImportResult(files=files, imported=2, updated=1, duplicates=0, next_step="Go on.")


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_end_of_a_long_path_is_shown_however_narrow_the_screen(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["19e9e5c8-82a7-46f5-93e8-c29600cb5b27.jsonl", "5d6f1b7a-0000-46f5-93e8-c29600cb5b27.jsonl"]
    monkeypatch.setenv("COLUMNS", str(width))
    console = Console(soft_wrap=True, file=io.StringIO())
    show_import(console, _result(*names))
    column = "".join(line.split(" ")[0] for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]
    assert all(name in column for name in names)


def test_updated_runs_of_a_file_in_the_inbox_are_counted_and_are_no_failure(tmp_path: Path) -> None:
    log = tmp_path / "home" / "inbox" / "chat.jsonl"
    log.parent.mkdir(parents=True)
    row = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]}
    printed = []
    for tag, path in (("one", "chat.jsonl"), ("two", "inbox/chat.jsonl")):
        log.write_text(json.dumps(row) + "\n")
        done = quintain("import", path, "--again", "--tag", tag, home=tmp_path / "home")
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert "1 run came in, 0 were updated" in printed[0]
    assert "0 runs came in, 1 were updated" in printed[1]


def test_a_pattern_that_the_shell_expanded_is_one_import(tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]}
    texts = (json.dumps(row), json.dumps({"prompt": "2+2?", "completion": "4"}), json.dumps(row), "no log")
    files = [tmp_path / f"{n}.jsonl" for n, _ in enumerate(texts)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text + "\n")
    done = quintain("import", *map(str, files), "--tag", "mine", "--json", home=tmp_path / "home")
    found = json.loads(done.stdout)
    assert (done.returncode, [one["file"] for one in found["files"]]) == (0, [file.name for file in files])
    names = ("imported", "duplicates", "file_count", "refused_count", "format", "confidence")
    assert [found[name] for name in names] == [2, 1, 4, 1, None, None]
    shown = quintain("import", *map(str, files), "--again", home=tmp_path / "home").stdout
    assert "0 runs came in, 0 were updated, 3 were known" in shown


def test_files_that_nothing_reads_are_counted_in_the_last_sentences_with_what_reads_them(tmp_path: Path) -> None:
    """Two of three files are no logs: neither the first import nor the second may read as if all had come in."""
    folder = tmp_path / "logs"
    folder.mkdir()
    row = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]}
    (folder / "a.jsonl").write_text(json.dumps(row | {"success": "ja"}))
    (folder / "b.jsonl").write_text(json.dumps({"nummer": 1, "verlauf": []}))
    (folder / "c.parquet").write_bytes(b"PAR1")
    first, second = (quintain("import", str(folder), home=tmp_path / "home").stdout for _ in range(2))
    assert "1 run came in" in first
    assert "0 rejected, 2 files not read; redacted" in first
    assert "'ja' (1)" in first
    assert "quintain export sft NAME --rows PATH --column label=success --column good=VALUE" in first
    for printed in (first, second):
        assert "not a log; quintain export sft NAME --rows PATH reads it" in printed
        assert "2 files not read, each listed with its reason" in printed
        assert "quintain export sft rows --rows PATH --column prompt=VALUE" in printed
    assert "1 file unchanged" in second
    assert "Nothing new" not in second
    (folder / "b.jsonl").unlink()
    (folder / "c.parquet").unlink()
    assert (
        "Nothing new: these runs were imported before."
        in quintain("import", str(folder), home=tmp_path / "home").stdout
    )


def test_json_lists_every_file_and_the_table_says_how_many_it_leaves_out(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for n in range(60):
        row = {"messages": [{"role": "user", "content": f"Hi {n}."}, {"role": "assistant", "content": "Hello."}]}
        (tmp_path / "logs" / f"{n}.jsonl").write_text(json.dumps(row))
    whole = quintain("import", str(tmp_path / "logs"), "--json", home=tmp_path / "home")
    assert len(json.loads(whole.stdout)["files"]) == 60
    table = quintain("import", str(tmp_path / "logs"), "--again", home=tmp_path / "home")
    assert "and 10 more of 60 files; --json lists all" in table.stdout


def test_a_path_that_is_not_there_is_refused_with_the_name_beside_it_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "october-logs").mkdir()
    monkeypatch.chdir(tmp_path)
    done = quintain("import", "octobre-logs", home=tmp_path / "home")
    assert "got nothing at 'octobre-logs' (did you mean 'october-logs'?); correct the path" in done.stderr
    assert done.returncode == 2


def test_labels_in_a_table_come_in_by_columns_that_options_name(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (tmp_path / "chat.jsonl").write_text(
        json.dumps(
            {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]}
            | {"session_id": "s-1"}
        )
    )
    (tmp_path / "thumbs.csv").write_text("session,thumbs,who\ns-1,up,Ann\ns-2,up,Ann\n")
    assert quintain("import", str(tmp_path / "chat.jsonl"), home=home).returncode == 0
    options = ("--column", "label=thumbs", "--column", "good=up", "--column", "rater=who")
    done = quintain("import", str(tmp_path / "thumbs.csv"), *options, home=home)
    assert done.returncode == 0, done.stderr
    assert "rater person:Ann, rubric thumbs, value 1.0" in done.stdout
    assert "thumbs.csv:2: no stored run has 's-2' as its session_id" in done.stdout
    assert "1 label came in, 0 were updated, 0 were known" in done.stdout
    assert "quintain score people:thumbs" in done.stdout
