"""Backups as a tool: an assistant backs up a home by a name, and its backup becomes a new home."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.errors import InvalidInput, NotFound, QuintainError, Refused
from quintain.settings import Settings
from quintain.tools.data import backups
from quintain.tools.data.backups import back_up_home
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.services import Services, open_services
from trajectory_runs import run


@pytest.fixture
def assistant(tmp_path: Path) -> Services:
    services = open_services(Settings(home=tmp_path / "home"))
    services.store.trajectories.add_many([run("kept"), run("also kept")], services.clock())
    return services


def ids(services: Services) -> list[str]:
    return [one.id for one in search_trajectories(services).items]


@pytest.mark.parametrize("name", ["monday", "monday.tar.gz"])
def test_a_backup_is_made_checked_and_becomes_a_home_that_serves_while_the_first_goes_on(
    assistant: Services, name: str
) -> None:
    export_dataset(
        assistant, "sft", "frozen", trajectory_ids=ids(assistant), outcomes=["success", "failure", "unknown"]
    )
    assistant.jobs.reconcile()  # the home claims its jobs, as one that serves
    made = back_up_home(assistant, name)
    assert (made.path, made.home) == (str(assistant.settings.home / "backups" / name), None)
    assert "back_up_home(name=" in str(made.next_step)
    assert back_up_home(assistant, name, "check").files == made.files
    before = ids(assistant)
    assistant.store.trajectories.add_many([run("later")], assistant.clock())
    restored = back_up_home(assistant, name, "restore")
    assert restored.home == str(assistant.settings.home / "restored" / "monday")
    new = open_services(Settings(home=Path(restored.home)))
    assert ids(new) == before
    new.jobs.reconcile()
    frozen = Path(new.store.datasets.get("frozen").path)
    assert frozen.parents[1] == Path(restored.home), "a path in a home below the first one is moved once"
    assert (frozen / "train.jsonl").is_file()
    assert len(ids(assistant)) == 3
    new.close()
    with pytest.raises(QuintainError, match="home_not_empty"):
        back_up_home(assistant, name, "restore")
    with pytest.raises(QuintainError, match="which exists"):
        back_up_home(assistant, name)


def test_a_damaged_backup_is_named_and_makes_no_home(assistant: Services) -> None:
    path = Path(back_up_home(assistant, "monday").path)
    (path / "quintain.db").write_bytes(b"other")
    for action in ("check", "restore"):
        with pytest.raises(QuintainError, match="backup_damaged"):
            back_up_home(assistant, "monday", action)
    assert not any((assistant.settings.home / "restored" / "monday").glob("*"))


@pytest.mark.parametrize("name", ["../monday", "/tmp/monday", "jobs/monday", ".hidden", "a\nb", "~"])
def test_an_assistant_gives_a_name_and_no_path(assistant: Services, name: str) -> None:
    for action in ("create", "check", "restore"):
        with pytest.raises(InvalidInput, match="expected a name of letters"):
            back_up_home(assistant, name, action)


def test_what_is_not_there_or_too_large_is_refused_with_the_remedy(
    assistant: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="make one with `action='create'`"):
        back_up_home(assistant, "monday", "check")
    back_up_home(assistant, "monday")
    with pytest.raises(NotFound, match=r"did you mean 'monday'\?\); there is monday"):
        back_up_home(assistant, "mondai", "restore")
    monkeypatch.setattr(backups, "IN_CALL_BYTES", 1)
    for name, action in (("tuesday", "create"), ("monday", "restore")):
        with pytest.raises(Refused, match="in a terminal"):
            back_up_home(assistant, name, action)


def test_forgetting_names_the_backups_and_homes_that_still_contain_the_run(assistant: Services) -> None:
    path = back_up_home(assistant, "monday").path
    home = back_up_home(assistant, "monday", "restore").home
    assert {path, home} <= set(forget(assistant, id=ids(assistant)[0], dry_run=False).copies)
