"""What a shell gets to complete a line, as bash asks for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quintain.cli.main import app
from quintain.records.agent import Agent, ModelRef
from quintain.settings import Settings
from quintain.tools.services import open_services
from trajectory_runs import run


def completed(line: str, home: Path) -> list[str]:
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "QUINTAIN_HOME": str(home)}
    done = CliRunner(env={**asked, "_QUINTAIN_COMPLETE": "complete_bash"}).invoke(app, [], prog_name="quintain")
    return done.stdout.split()


def test_commands_ids_names_and_choices_are_completed(settings: Settings) -> None:
    services = open_services(settings, trusted=True)
    (added,) = services.store.trajectories.add_many([run("t1")], services.clock())
    for name in ("scholar", "scribe", "other_1", "otherx1"):
        model = ModelRef(source="endpoint", path=name)
        services.store.agents.add(Agent(name=name, model=model), services.clock())
    services.close()
    home = settings.home
    assert completed("quintain sh", home) == ["show"]
    assert "watch" in completed("quintain jobs ", home)
    assert "list" not in completed("quintain jobs w", home)
    assert completed("quintain show traj-", home) == [added.id]
    assert completed("quintain report sch", home) == ["scholar"]
    assert completed("quintain score ru", home) == completed("quintain export sft a --scorer ru", home) == ["rules"]
    assert completed("quintain evaluate sc", home) == ["scribe", "scholar"]
    assert completed("quintain evaluate other_", home) == ["other_1"]
    assert completed("quintain evaluate scholar --environment quintain/inv", home) == ["quintain/inventory"]
    assert completed(f"quintain compare --home {home} scr", home / "none") == ["scribe"]
    assert completed("quintain library eval", home) == ["evaluations"]
    assert "--max-turns" in completed("quintain evaluate --max", home)
    (home / "quintain.db").write_bytes(b"no database")
    assert completed("quintain show traj-", home) == completed("quintain show traj-", home / "none") == []


@pytest.mark.parametrize("line", ["quintain show s"])
def test_a_name_is_completed_without_the_tools_sqlalchemy_and_torch(settings: Settings, line: str) -> None:
    script = (
        "import os, sys\n"
        f"os.environ.update(COMP_WORDS={line!r}, COMP_CWORD={str(len(line.split()) - 1)!r}, QUINTAIN_HOME={str(settings.home)!r})\n"
        "os.environ['_QUINTAIN_COMPLETE'] = 'complete_bash'\n"
        "from quintain.cli.main import app\n"
        "try: app(prog_name='quintain')\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'sqlalchemy', 'numpy', 'quintain.tools.services') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr
