from __future__ import annotations

import csv
import errno
import io
import json
import os
import tempfile
from pathlib import Path

import pytest
from platformdirs import user_data_path
from typer.testing import CliRunner

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.artifacts.checksums import write_checksums
from quintain.cli.commands import talk
from quintain.cli.commands.doctor import run_doctor
from quintain.cli.main import app, command
from quintain.cli.table import COMMANDS, SECTIONS
from quintain.errors import Unavailable, disk_remedy
from quintain.next_step import Hint
from quintain.records.agent import Agent, ModelRef
from quintain.records.jobs.job import SelftestSpec
from quintain.records.trajectory import OutcomeStatus
from quintain.settings import Settings, read_settings
from quintain.tools.catalog import CATALOG
from quintain.tools.data.datasets import export_dataset
from quintain.tools.evaluation.conversations import TalkResult
from quintain.tools.services import Services
from store_shelves import job
from terminal import quintain
from trajectory_runs import answer, call, run, user


def test_doctor_runs_a_real_job_which_can_be_listed_and_shown(home: Path) -> None:
    done = quintain("doctor", home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a job from start to end: ok (job-" in done.stdout
    listed = quintain("jobs", "--limit", "1", home=home).stdout
    assert "selftest" in listed
    job_id = next(word for word in listed.split() if word.startswith("job-"))
    shown = json.loads(quintain("jobs", "show", job_id, "--json", home=home).stdout)
    assert (shown["status"], shown["step"]) == ("succeeded", 3)
    ended = quintain("jobs", "first", job_id, home=home)
    assert (ended.returncode, "expected a queued job" in ended.stderr) == (2, True)
    assert quintain("show", "guide://methods/sft", home=home).stdout.startswith("# Method `sft`")
    unplayed = quintain("show", "leaderboard://quintain/nim?difficulty=easy", home=home).stderr
    assert "no agent was evaluated in 'quintain/nim?difficulty=easy'" in unplayed
    missing = quintain("jobs", "show", "job-none", home=home)
    assert (missing.returncode, "[not_found]" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--transport", "carrier-pigeon"), ["[invalid_input]", "carrier-pigeon", "stdio or http"]),
        (("serve", "--toolsets", "data,magic"), ["[", "magic", "evaluate"]),
        (("plan", "improve"), ["GOAL: expected purposes of a training", "imitate: do what good runs did"]),
        (
            ("train", "--method", "lora", "--environment", "quintain/nim"),
            ["got 'lora'; for the same purpose use 'sft'"],
        ),
        (("runs", "--outcome", "succes"), ["--outcome: expected one of success, ", "did you mean 'success'?"]),
    ],
)
def test_a_wrong_option_is_refused_with_the_valid_ones(
    home: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    done = quintain(*arguments, home=home)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


def test_help_is_in_sections_and_names_commands_where_tools_name_tools(home: Path) -> None:
    listed = quintain("--help").stdout
    places = [listed.index(f" {title} ") for title in SECTIONS.values()]
    assert places == sorted(places)
    assert listed.index(" evaluate ") > places[list(SECTIONS).index("evaluate")]
    names = [spec.name for spec in CATALOG if "_" in spec.name]
    built = {name: command(name) for name in COMMANDS}
    helps = {name: [one.help, *(getattr(param, "help", None) for param in one.params)] for name, one in built.items()}
    before_choices = {name: [(text or "").partition("one of ")[0] for text in texts] for name, texts in helps.items()}
    assert not [
        (name, text) for name, texts in before_choices.items() for text in texts for tool in names if tool in text
    ]
    assert "replay, talk, export_agent, fetch" in str(helps["jobs list"]), "a choice is no tool"
    assert quintain("jobs", "list", "--help").stdout.count("queued") == 1, "choices are listed once"
    assert "quintain export --scorer SCORER --min-score MIN_SCORE" in str(helps["score"])
    assert (helps["evolve"][0] or "").startswith("Let an agent explore"), "not the start of any training"
    assert helps["agents"][0] == "List the agents."
    assert "Same --environment, --split, --n-tasks, --repeats" in str(helps["evaluate"][0])


def test_a_file_that_cannot_take_the_results_is_refused_before_the_demo_begins(tmp_path: Path) -> None:
    for arguments, word in (
        (("--json", str(tmp_path / "none" / "a.json")), "cannot be written"),
        (("a.json",), "add --json"),
    ):
        done = quintain("demo", *arguments, "--out", str(tmp_path / "demo"))
        assert (done.returncode, word in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "demo").exists()


def test_the_help_names_the_home_and_leaves_out_the_words_of_json() -> None:
    assert "QUINTAIN_HOME" in quintain("--help").stdout
    helps = {param.name: getattr(param, "help", None) or "" for param in command("preview").params}
    assert helps["hyperparameters"] == "Settings of that training: max_length, chunk, ...; KEY=VALUE, repeat"
    texts = [getattr(param, "help", None) or "" for name in COMMANDS for param in command(name).params]
    assert [text for text in texts if "ull:" in text] == []


def test_a_summary_of_runs_is_printed_below_their_list(settings: Settings, services: Services) -> None:
    good, bad = OutcomeStatus.SUCCESS, OutcomeStatus.FAILURE
    runs = [
        run(f"t{n // 2}", user(), call("look"), answer(), status=one, episode_key=f"{n}")
        for n, one in enumerate((good, good, good, bad))
    ]
    hostile = runs[-1].model_copy(update={"task": runs[-1].task.model_copy(update={"prompt": "=1+\x1b[2J"})})
    services.store.trajectories.add_many([*runs[:-1], hostile], services.clock())
    shown = quintain("runs", "--summary", "--limit", "1", home=settings.home).stdout
    assert "runs: 4 runs of 2 tasks" in shown
    assert "outcomes: success 3, failure 1" in shown
    assert "success: 75.0% of 4 with a verdict (95 %: " in shown
    assert "pass@k: k=1 75.0%, k=2 100.0%" in shown
    assert "pass^k: k=1 75.0%, k=2 50.0%" in shown
    assert [line.split() for line in shown.splitlines() if line.startswith("look")] == [["look", "4", "0", "4", "3"]]
    listed = quintain("runs", home=settings.home).stdout
    assert listed.split()[:4] == ["run", "outcome", "reward", "turns"], "steps in all are more"
    assert "success:" not in listed
    table = list(csv.DictReader(io.StringIO(quintain("runs", "--limit", "1", "--csv", "-", home=settings.home).stdout)))
    assert [row["outcome"] for row in table] == ["failure", "success", "success", "success"], "all, newest first"
    assert table[0]["prompt"] == "'=1+\ufffd[2J", "no formula of a spreadsheet, and nothing that steers a terminal"
    one = quintain("show", table[0]["id"], home=settings.home).stdout
    assert "\nenvironment: quintain/inventory\n" in one


def test_a_shown_run_has_its_scores_and_names_the_steps_that_no_training_uses(services: Services, home: Path) -> None:
    masked = answer("Not mine.").model_copy(update={"train": False})
    done = run("t1", user(), masked, answer(), status=OutcomeStatus.SUCCESS).model_copy(update={"id": "traj-1"})
    services.store.trajectories.add_many([done], services.clock())
    quintain("score", "outcome", "--all", home=home)
    shown = quintain("show", "traj-1", home=home).stdout
    assert "\nscores: outcome 1\n" in shown
    assert [line for line in shown.splitlines() if line.startswith("[")] == [
        *("[0] user", "[1] agent, which no training uses", "[2] agent")
    ]


def test_an_agent_that_cannot_talk_is_refused_before_a_line_is_read(home: Path) -> None:
    for agent, code in (("nobody", "[not_found]"), ("expert", "[no_weights]")):
        done = quintain("talk", agent, home=home)
        assert (done.returncode, code in done.stderr) == (2, True), done.stderr
    for more in ((), ("--json",)):
        done = quintain("talk", "starter", "--message", "", *more, home=home)
        assert (done.returncode, "--message: expected a string with at least 1 character" in done.stderr) == (2, True)
    assert json.loads(quintain("jobs", "list", "--json", home=home).stdout)["items"] == [], "no job begins"


def test_a_talk_begins_with_an_example_of_what_can_be_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = TalkResult(
        job_id="job-1",
        turn="person",
        status="running",
        steps=({"actor": "user", "message": "Hi"}, {"actor": "agent", "message": "Hello."}),
        example="How heavy is the hat?",
        resource_uri="job://job-1",
        next_step=Hint(""),
    )
    monkeypatch.setattr(talk, "_exchange", lambda services, arguments: said)
    done = quintain("talk", "starter", "--environment", "quintain/inventory", "--message", "Hi", home=home)
    shown = ["What can be asked here: How heavy is the hat?", "Hello.", "Not stored: job-1"]
    assert done.stdout.splitlines() == shown


def test_a_new_home_is_named_once(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    assert quintain("runs", home=wrong).stderr == f"New home folder: {wrong}\n"
    assert quintain("runs", home=wrong).stderr == ""


def test_a_tilde_that_no_shell_replaced_is_the_users_folder_and_an_empty_variable_is_unset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert quintain("runs", "--home=~/by-option").stderr == f"New home folder: {tmp_path / 'by-option'}\n"
    for variable, folder in (("~/by-variable", "by-variable"), ("", user_data_path("quintain", appauthor=False))):
        monkeypatch.setenv("QUINTAIN_HOME", variable)
        assert read_settings().home == tmp_path / folder
    monkeypatch.setenv("QUINTAIN_HOME", "~no-such-user/home")
    assert "QUINTAIN_HOME is '~no-such-user/home'" in quintain("runs").stderr


def test_a_recorded_file_of_messages_is_told_which_of_its_keys_are_left_out(home: Path, tmp_path: Path) -> None:
    row = {"messages": [{"role": "assistant", "content": "4"}], "task": "2 + 2?", "success": True, "reward": 0.25}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(row), encoding="utf-8")
    done = quintain("record", str(path), home=home)
    assert (done.returncode, "reward, success; `quintain import`" in done.stderr) == (0, True), done.stderr


def test_a_terminal_that_cannot_show_a_character_gets_its_escape(home: Path) -> None:
    record = ["record", "-", "--task", "2 ☃?", "--home", str(home)]
    CliRunner().invoke(app, record, input='[{"role": "assistant", "content": "4"}]')
    done = CliRunner(charset="ascii", env={"COLUMNS": "80"}).invoke(app, ["runs", "--home", str(home)])
    assert (done.exit_code, r"2 \u2603?" in done.stdout) == (0, True), done.output


@pytest.mark.parametrize(
    ("line", "place", "fault"),
    [
        ("jobs show", "jobs show", "Missing argument 'job_id'"),
        ("jobs show a b", "jobs show", "unexpected extra argument"),
        ("prefer record", "prefer record", "Missing argument 'file'"),
        ("prefer imported file.jsonl --all", "prefer imported", "unexpected extra argument"),
        ("runs --limt 3", "runs", "No such option: --limt"),
        ("search --limit", "runs", "'--limit' requires an argument"),
        ("collect --agent expert", "collect", "AGENT is given without an option's name: quintain collect AGENT"),
        ("runs --limit many", "runs", "valid integer"),
        (
            "train --batch-size 8",
            "train",
            "No such option: --batch-size; a setting of the method is --set batch_size=VALUE;",
        ),
        ("train --dataset", "train", "'--dataset' requires an argument; see"),
        ("serve --port 65536", "serve", "'--port'"),
        ("jobs shw", "jobs", "No such command 'shw' (did you mean 'show'?)"),
        ("jobs job-1234", "jobs", "No such command 'job-1234' (did you mean 'quintain jobs show job-1234'?)"),
        ("jbs", "", "No such command 'jbs' (did you mean 'jobs'?)"),
        ("--hom x jobs", "", "No such option: --hom"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_code_fault_and_where_to_look(line: str, place: str, fault: str) -> None:
    done = quintain(*line.split())
    command = f"quintain {place}".strip()
    start = f"[invalid_input] expected arguments and options of {command}, got a wrong command line: "
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(start)
    assert fault in done.stderr
    assert done.stderr.endswith(f"; see {command} --help\n")


@pytest.mark.parametrize(("name", "text"), [("rows.jsonl", '{"answer": 3}\n'), ("rows.yaml", "- answer: 3\n")])
def test_tasks_are_read_from_a_file_of_rows(home: Path, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    refused = quintain(
        "collect", "expert", "--environment", "quintain/tasks", "--tasks", str(tmp_path / name), home=home
    ).stderr
    assert "tasks[0]: expected an id or a prompt" in refused


def test_a_home_that_cannot_be_written_is_told_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    done = quintain("jobs", home=tmp_path / "file" / "home")
    assert done.returncode == 2
    assert "QUINTAIN_HOME" in done.stderr


@pytest.mark.usefixtures("jobs_in_process")
def test_doctor_names_settings_without_effect(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"SLOT": "2", "OF_ANOTHER_PROGRAM": "1"}
    for name, value in (others | {"ARTIFACTS": "s3:/b", "CHECKPOINTS": "/c", "ROOTS": "/nowhere"}).items():
        monkeypatch.setenv(f"QUINTAIN_{name}", value)
    assert run_doctor(home) == 1
    printed = " ".join(capsys.readouterr().out.split())
    for fault in (
        "QUINTAIN_SLOT (did you mean QUINTAIN_SLOTS?) has no effect",
        "in QUINTAIN_ARTIFACTS, got 's3:/b'",
        "in QUINTAIN_CHECKPOINTS, got '/c'",
        "/nowhere in QUINTAIN_ROOTS does not exist",
    ):
        assert fault in printed
    assert "OF_ANOTHER_PROGRAM" not in printed


@pytest.mark.usefixtures("jobs_in_process")
def test_doctor_names_datasets_and_models_that_were_lost_and_removes_what_is_half_written(
    settings: Settings, services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    added, other = services.store.trajectories.add_many([run("t1"), run("t2")], services.clock())
    made = export_dataset(services, "sft", "x", trajectory_ids=[added.id])
    lost = ModelRef(source="folder", path=str(settings.agents_dir / "lost"))
    services.store.agents.add(Agent(name="lost", model=lost), services.clock())
    damaged = settings.agents_dir / "damaged"
    damaged.mkdir()
    (damaged / "model.safetensors").write_bytes(b"weights")
    write_checksums(damaged)
    (damaged / "model.safetensors").write_bytes(b"other")
    model = ModelRef(source="folder", path=str(damaged))
    services.store.agents.add(Agent(name="damaged", model=model), services.clock())
    changed = export_dataset(services, "sft", "y", trajectory_ids=[other.id])
    Path(made.path, "train.jsonl").unlink()
    rows = Path(changed.path, "train.jsonl")
    rows.write_bytes(rows.read_bytes().replace(b"t", b"T"))
    os.utime(rows, (0, 0))  # as a fault of the disk does, which is no write
    settings.environments_file.write_text("[a")
    cut = export_dataset(services, "sft", "z", trajectory_ids=[other.id])
    os.truncate(Path(cut.path, "manifest.json"), 20)
    stray = settings.jobs_dir / "job-0000000001" / "spec.json"
    stray.parent.mkdir(parents=True)
    stray.write_text("{}")
    known = stray.parents[1] / "job-0000000002" / "spec.json"
    known.parent.mkdir()
    known.write_text("{}")
    job(services.store, "job-0000000002", SelftestSpec())
    old, new = (settings.datasets_dir / f".ds-{name}" for name in ("old", "new"))
    exported = settings.exports_dir / ".clerk.partial"
    of_user = settings.datasets_dir / ".git"
    for path in (old, new, exported, of_user):
        path.mkdir(parents=True)
    for path in (old, exported, of_user):
        os.utime(path, (0, 0))
    assert run_doctor(settings.home) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert f"dataset {made.dataset_id} has lost its file 'train.jsonl'" in printed
    assert f"an agent has lost its model {lost.path}" in printed
    assert f"dataset {changed.dataset_id} was changed on disk: 'train.jsonl'" in printed
    assert f"expected the model in {damaged} as its SHA256SUMS lists it, but model.safetensors has changed" in printed
    assert "environments: [bad_environments] expected TOML" in printed
    assert "the database lacks 1 of the 2 jobs whose folders are here (job-0000000001)" in printed
    assert f"{cut.path}" in printed
    assert (old.exists(), exported.exists(), new.exists()) == (False, False, True), (
        "another process may still write the new one"
    )
    assert of_user.exists(), "a hidden folder of the user is no half-written dataset"


def test_doctor_and_export_see_that_a_home_cannot_be_written(
    settings: Settings, services: Services, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user who runs the tests may write anywhere, so the system's answer is given here."""
    (added,) = services.store.trajectories.add_many([run("t1")], services.clock())

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    for code, remedy in ((errno.ENOSPC, "free disk space"), (errno.EIO, "check the disk")):
        assert disk_remedy(OSError(code, "no")).startswith(remedy)
    assert run_doctor(settings.home) == 1
    assert "Read-only file system); give this user write permission" in capsys.readouterr().out
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(Unavailable, match="give this user write permission, or set QUINTAIN_HOME") as raised:
        export_dataset(services, "sft", "x", trajectory_ids=[added.id])
    assert "disk space" not in raised.value.message
