"""Names that are code to somebody: a Python import, a shell, an option parser. None is run, and none becomes an option."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quintain.jobs.launchers.contract import Attempt, ClusterOptions
from quintain.jobs.launchers.slurm import SlurmLauncher
from quintain.server.calls.bindings import bind_all
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.services import open_services
from security.test_hostile_paths import call

CODE = (
    "__import__('os').system('touch {canary}')", "exec(\"open('{canary}', 'w')\")", "lambda run: open('{canary}', 'w')",
    "os:system", "os.system", "builtins:eval", "subprocess:run('touch {canary}')", "../payload.py:f", "{folder}/payload.py:f",
    "{folder}/payload.py", "payload:f", "file://{folder}/payload.py", "python:payload.f", "{{{{payload.f()}}}}", "rules;touch {canary}",
    "$(touch {canary})", "`touch {canary}`", "rules\ntouch {canary}", "--rules", "-c import payload", "__class__", "rules.__init__",
)  # fmt: skip

REWARDS = (
    ("score_trajectories", "scorer", {"filter": {"outcome": "success"}}),
    ("start_training", "reward", {"method": "grpo", "model": "starter", "environment": "quintain/inventory"}),
    ("start_training", "environment", {"method": "grpo", "model": "starter"}),
    ("collect_rollouts", "reward", {"agent": "starter", "environment": "quintain/inventory"}),
    ("collect_rollouts", "environment", {"agent": "starter"}),
    ("record_preferences", "scorer", {"source": "scores", "filter": {"outcome": "success"}}),
)


def test_no_name_of_a_scorer_or_an_environment_is_run_as_code(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("cases", len(CODE))
    canary = tmp_path / "canary"
    (tmp_path / "payload.py").write_text(f"open({str(canary)!r}, 'w').close()\ndef f(*a): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    services, bindings = open_services(settings), bind_all(CATALOG)
    try:
        for tool, argument, others in REWARDS:
            for code in CODE:
                text = code.format(canary=canary, folder=tmp_path)
                for value in (text, {text: 1.0}):
                    answer = call(bindings[tool], services, {**others, argument: value})
                    assert answer.startswith("["), (tool, argument, value, answer)
    finally:
        services.close()
    assert not canary.exists()
    assert "payload" not in sys.modules


NAMES = (
    "-rf", "--wrap=touch canary", "a;touch canary", "a\ntouch canary", "$(touch canary)", "`touch canary`", "a b", "*", "'", '"', "\\",
)  # fmt: skip


def test_a_batch_job_gets_hostile_names_as_values_and_never_as_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    """`sbatch` here records its arguments and runs the script."""
    record_property("cases", len(NAMES))
    commands, record, output = tmp_path / "commands", tmp_path / "arguments", tmp_path / "output"
    folder = tmp_path / "--wrap=job $(touch canary) ;touch canary"
    for path in (commands, folder):
        path.mkdir()
    record_and_run = f'for last; do :; done; printf "%s\\0" "$@" > {record}; exec sh "$last" > {output}'
    (commands / "sbatch").write_text(f"#!/bin/sh\n{record_and_run}\n")
    (commands / "sbatch").chmod(0o700)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    command = (sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *NAMES)
    SlurmLauncher(ClusterOptions()).start(Attempt("job-1", 1, "a1", folder, command=command))
    assert json.loads(output.read_text()) == list(NAMES)
    *options, script, end = record.read_text().split("\0")
    assert end == ""
    assert script == str(folder / "launch.sh")
    assert all(option.startswith("--") for option in options)
    assert f"--chdir={folder}" in options
    assert not any(option.startswith("--wrap") for option in options)
    assert list(tmp_path.rglob("canary")) == []


def test_a_home_of_any_name_has_its_database_inside(tmp_path: Path) -> None:
    names = {"a ? b=c&d", "50%20 #x", 'new\nline "it\'s"', "größe 仓库 \u202e"}
    for name in names:
        open_services(Settings(home=tmp_path / name)).close()
        assert (tmp_path / name / "quintain.db").is_file(), name
    assert {path.name for path in tmp_path.iterdir()} == names
