"""`quintain train`: from a file or from options, detached, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from jobs_in_process import starts_held
from quintain.cli.tool_options import read_settings
from quintain.errors import InvalidInput
from quintain.settings import Settings
from terminal import quintain
from tiny_models import save_tiny_model

TRAINING = """\
method: pretrain
text: notes/*.txt
name: reader
hyperparameters:
  num_train_epochs: 500
  batch_size: 1
"""


def train(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return quintain("train", *arguments, home=home)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A config file, with two texts beside it and a tiny model."""
    (tmp_path / "notes").mkdir()
    for name in ("a", "b"):
        (tmp_path / "notes" / f"{name}.txt").write_text(f"Text {name}: items have a price.", encoding="utf-8")
    model = save_tiny_model(tmp_path / "tiny", hidden=16)
    path = tmp_path / "training.yaml"
    path.write_text(f"{TRAINING}model: {model}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["[invalid_input]", "--config FILE", "--method"]),
        (("--config", "none.yaml"), ["[not_found]", "none.yaml"]),
        (("--method", "sft"), ["[invalid_input]", "needs a dataset"]),
        (("--method", "sft", "--dataset", "none", "--set", "epochs"), ["--set epochs", "KEY=VALUE"]),
        (("--method", "sft", "--dataset", "none", "--seed", "99999999999"), ["seed", "0 to 2147483647"]),
        (("--method", "sft", "--dataset", "none", "--set", "epochs=" + "[" * 2000), ["--set epochs", "cannot be read"]),
        (
            ("--method", "sft", "--dataset", "none", "--set", "epoch=1"),
            ["--set epoch is not a known field", "nearest in words: epochs, "],
        ),
    ],
)
def test_what_cannot_be_started_is_told_with_exit_status_2(
    home: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    done = train(*arguments, home=home)
    assert done.returncode == 2, done.stdout
    assert [word for word in words if word not in done.stderr] == [], done.stderr


def test_a_config_file_of_wrong_values_is_told_with_exit_status_2(config: Path, home: Path) -> None:
    whole = config.read_text(encoding="utf-8").replace("name: reader\n", "")
    for line, word in (("name: 5", "got 5"), ("seed: abc", "'abc'"), ("? [a, b]\n: 1", "expected a text as name")):
        config.write_text(f"{whole}{line}\n", encoding="utf-8")
        done = train("--config", str(config), home=home)
        assert (done.returncode, word in done.stderr) == (2, True), done.stderr
        assert "Traceback" not in done.stderr


def test_a_refused_training_leaves_no_folder_for_its_model(config: Path, home: Path) -> None:
    there = config.parent / "there"
    there.mkdir()
    for named in ("new/model", "there/model"):
        folder = config.parent / named
        config.write_text(f"{TRAINING}model: starter\noutput_dir: {folder}\nfoo: 1\n", encoding="utf-8")
        assert train("--config", str(config), home=home).returncode == 2
    config.write_text(f"base_model: org/7b\noutput_dir: {config.parent / 'new/model'}\n", encoding="utf-8")
    refused = train("--config", str(config), home=home)
    assert "expected the name of a training method, such as sft" in refused.stderr
    assert ((config.parent / "new").exists(), list(there.iterdir())) == (False, [])


def test_a_detached_training_answers_in_json_and_reports_that_no_copy_is_made(config: Path, settings: Settings) -> None:
    folder = config.parent / "model"
    asked = ("--config", str(config), "--output-dir", str(folder), "--set", "epochs=1")
    with starts_held(settings.jobs_dir):
        done = train(*asked, "--detach", "--json", home=settings.home)
    assert json.loads(done.stdout)["job_id"].startswith("job-")
    assert (f"{folder} gets no copy" in done.stderr, folder.exists()) == (True, False)


def test_options_replace_what_the_file_of_another_trainer_says_under_its_own_names(tmp_path: Path, home: Path) -> None:
    """Model, data and method are named otherwise there, and an empty seed is none: only the dataset is missing."""
    path = tmp_path / "lora_sft.yaml"
    path.write_text(
        "base_model: org/7b\ndatasets: [{path: org/rows}]\ndataset_splits: [train]\nstage: rm\nseed:\ncutoff_len: 64\n",
        encoding="utf-8",
    )
    done = train("--config", str(path), "--method", "sft", "--model", "starter", "--dataset", "none-yet", home=home)
    assert "[not_found]" in done.stderr, done.stderr
    assert "none-yet" in done.stderr


def test_settings_of_the_command_line_are_yaml_and_reach_into_groups() -> None:
    given = ["epochs=2", "lora.rank=8", "lora.targets=[q_proj]", "report_to=[tensorboard]", "chunk=true"]
    assert read_settings(given) == {
        "epochs": 2,
        "lora": {"rank": 8, "targets": ["q_proj"]},
        "report_to": ["tensorboard"],
        "chunk": True,
    }
    for wrong in (["epochs"], ["=2"], ["epochs=1", "epochs=2"], ["lora=1", "lora.rank=2"], ["epochs=[1"]):
        with pytest.raises(InvalidInput, match="--set"):
            read_settings(wrong)
