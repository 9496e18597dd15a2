"""The program as at a terminal, within this process: what it prints on both streams, and its exit status."""

from __future__ import annotations

import subprocess
from pathlib import Path

from typer.testing import CliRunner

from quintain.cli.main import app


def quintain(*arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Carry out one command; what it does not turn into an exit status is raised here."""
    command = [*arguments, *(["--home", str(home)] if home is not None else [])]
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, command, catch_exceptions=False)
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)
