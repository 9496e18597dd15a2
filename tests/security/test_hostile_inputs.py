"""A slice of the hostile inputs of `benchmarks.hostile`, and that they find a defect which is put back."""

from __future__ import annotations

import logging
import stat
import sys
from pathlib import Path

import pytest
from benchmarks.hostile.inputs import LINES
from benchmarks.hostile.servers import StdioTarget
from benchmarks.hostile.trials import Trial, draws_of, run

from quintain.errors import NotFound
from quintain.server.calls.failures import protocol_failure
from quintain.server.transport.logs import JsonFormatter

WITHOUT_THE_CHECK_OF_IDS = (
    "import quintain.server.transport.json_rpc_lines as lines, quintain.server.transport.stdio as stdio; "
    "lines.encodable_id = stdio.encodable_id = lambda value: value; from quintain.cli.main import app; app()"
)


def test_a_slice_of_the_hostile_inputs_is_answered_with_remedies_and_damages_nothing(tmp_path: Path) -> None:
    trial = run(tmp_path, generated=140, seed=20, one_in=5)
    assert [finding for finding in trial.findings if finding.kind != "late"] == []
    assert trial.fixed >= 300
    assert sum(trial.inputs.values()) >= 240
    assert len(trial.inputs) == 5, "both eras on both transports, and the page"
    database = tmp_path / "home" / "quintain.db"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in database.parent.glob("quintain.db*")}
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.soak
def test_the_inputs_find_an_id_that_kills_a_server_without_the_check_of_ids(tmp_path: Path) -> None:
    command = (sys.executable, "-c", WITHOUT_THE_CHECK_OF_IDS)
    target = StdioTarget(tmp_path / "home", "2025-11-25", tmp_path / "log", command)
    trial, draws = Trial([target], tmp_path / "home"), draws_of(["a"], seed=0)
    try:
        for line in LINES[:1]:
            trial.send(line)
        fixed = trial.count("death")
        while trial.count("death") == fixed and sum(trial.inputs.values()) < 200:  # a share of the draws can kill
            trial.send(draws.line())
    finally:
        target.close()
    assert (fixed, trial.count("death")) == (1, 2)


def test_errors_of_resources_and_prompts_repeat_no_secret_and_name_a_remedy() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    error = protocol_failure(f"job://{secret}", NotFound(f"expected a job, got {secret!r}"))
    assert secret not in f"{error} {error.error}"
    assert error.error.message.endswith("; correct it and ask again")


@pytest.mark.parametrize("hostile", ["a\n{}", "\x1b]0;x\x07", "\x9b2J\x7f", "\u202egnp", "\U000e0041"])
def test_a_record_of_the_log_is_one_line_of_printable_ascii(hostile: str) -> None:
    record = logging.LogRecord("quintain", logging.ERROR, "", 0, "got %s", (hostile,), None)
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert line.isprintable()
