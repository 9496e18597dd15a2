"""What tools may read: the inbox, the datasets, the exports and the operator's folders, also where a dataset's name is a file's."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_client import ToolCaller
from quintain.errors import NotFound, Refused
from quintain.settings import Settings
from quintain.tools.data.row_references import find_rows, named_dataset
from quintain.tools.roots import readable
from quintain.tools.services import open_services
from tools.stored_records import write_rows

SECRET = "url = 'http://host.internal/v1'"


@pytest.fixture
def folders(settings: Settings) -> Settings:
    """A home folder with a private file beside each folder, and links to them in the inbox."""
    for name in ("jobs/job-1", "inbox", "datasets", "exports", "agents/a-1", "cache"):
        (settings.home / name).mkdir(parents=True)
        (settings.home / name / "notes.txt").write_text(SECRET)
    settings.endpoints_file.write_text(SECRET)
    (settings.inbox_dir / "link.txt").symlink_to(settings.endpoints_file)
    (settings.inbox_dir / "linked").symlink_to(settings.jobs_dir)
    return settings


def test_only_three_folders_of_the_home_folder_are_read(folders: Settings, ask: ToolCaller) -> None:
    home = folders.home.resolve()
    private = (
        *(
            "../endpoints.toml",
            "../jobs",
            "../jobs/job-1/notes.txt",
            "../agents/a-1/notes.txt",
            "../cache",
            "..",
            "../",
        ),
        *(str(home), str(home / "quintain.db"), str(folders.endpoints_file), "link.txt", "linked", "linked/job-1"),
        *("jobs/job-1/notes.txt", "endpoints.toml", "quintain.db"),
        *("../inbox/../endpoints.toml", "../datasets/../jobs", "~/../../etc/hostname"),
    )
    files = ("notes.txt", "../exports/notes.txt", "exports/notes.txt")
    shared = (".", *files, "../datasets", "inbox", str(folders.inbox_dir))

    for path in private:
        for tool, arguments in (
            ("export_dataset", {"kind": "text", "name": "x", "path": path}),
            ("import_trajectories", {"path": path}),
            ("register_agent", {"name": "x", "model": path}),
            ("score_trajectories", {"scorer": "rules", "profile": f"{path}/a.json"}),
        ):
            (error,) = ask.refused(tool, arguments)
            assert "host.internal" not in error
            assert "[outside_roots]" in error or (path[0] not in "./~" and "not_found]" in error), (path, error)
    for number, path in enumerate(shared):
        assert ask("export_dataset", kind="text", name=f"d{number}", path=path)["rows"] >= 1, path
    assert "[outside_roots]" not in ask.raw("import_trajectories", path="../exports").content[0].text


def test_the_terminal_and_python_read_in_the_working_folder_first_and_then_where_tools_do(
    folders: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    services = open_services(folders, trusted=True)
    for path in ("notes.txt", "inbox/notes.txt", "exports/notes.txt"):
        found = readable(services, path, "data")
        assert found == folders.home.resolve() / (path if "/" in path else f"inbox/{path}")
    for path in ("endpoints.toml", "../endpoints.toml", "jobs/job-1/notes.txt"):
        assert not readable(services, path, "data").exists(), "what is not data is read by its whole path alone"
    (working / "notes.txt").write_text("mine")
    assert readable(services, "notes.txt", "data") == working.resolve() / "notes.txt"
    services.close()


@pytest.mark.parametrize("trusted", [False, True])
def test_names_that_no_file_can_have_are_not_found_and_private_paths_are_refused(
    settings: Settings, trusted: bool
) -> None:
    services = open_services(settings, trusted=trusted)
    for name in ("x" * 300, "x" * 6000, "a\0b", "~nobody9/x", "", ".", "nope"):
        with pytest.raises(NotFound, match="name a file of rows"):
            named_dataset(services, name, "sft")
    if not trusted:
        with pytest.raises(Refused, match="outside the allowed roots"):
            named_dataset(services, "../quintain.db", "sft")
    services.close()


def test_a_file_of_the_inbox_is_found_without_its_ending_and_frozen_once(settings: Settings, home: Path) -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    write_rows(settings.inbox_dir / "mine.jsonl", {"messages": turns})
    services = open_services(settings, trusted=False)
    assert find_rows(services, "mine") == (settings.inbox_dir / "mine.jsonl").resolve()
    assert named_dataset(services, "mine", "sft", make=False) is None
    made = named_dataset(services, "mine", "sft")
    assert made == named_dataset(services, "mine.jsonl", "sft") == named_dataset(services, made or "", "sft")
    services.close()
