"""What tools may read: the inbox, the datasets, the exports and the operator's folders; and the address of the web page."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_client import ToolCaller
from quintain.errors import NotFound, Refused
from quintain.next_step import call
from quintain.settings import Settings
from quintain.tools.data.row_references import find_rows, named_dataset
from quintain.tools.roots import readable
from quintain.tools.services import open_services
from quintain.tools.web_address import page_announced, page_of, page_of_call, web_address
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


@pytest.mark.parametrize("path", ["a" * 256, f"{'a' * 300}.jsonl", f"inbox/{'é' * 128}"])
def test_a_name_longer_than_a_file_s_can_be_is_not_found(folders: Settings, ask: ToolCaller, path: str) -> None:
    for tool, arguments in (
        ("export_dataset", {"kind": "sft", "name": "x", "path": path}),
        ("import_trajectories", {"path": path}),
        ("evaluate_agent", {"agent": "starter", "environment": f"quintain/tasks?file={path}"}),
        ("score_trajectories", {"scorer": "rules", "profile": f"{path}/a.json"}),
    ):
        (error,) = ask.refused(tool, arguments)
        assert error.startswith("[not_found] cannot read path")


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


def test_a_page_is_named_while_it_runs_and_what_a_killed_one_left_is_not_believed(tmp_path: Path) -> None:
    assert web_address(tmp_path) is None
    with page_announced(tmp_path, "http://127.0.0.1:1/"):
        assert web_address(tmp_path) == "http://127.0.0.1:1"
        with page_announced(tmp_path, "http://127.0.0.1:2"):
            assert web_address(tmp_path) == "http://127.0.0.1:2"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "web-page").write_text("http://127.0.0.1:3", encoding="utf-8")  # nobody has locked it
    assert web_address(tmp_path) is None
    with page_announced(tmp_path, "javascript:alert(1)"):
        assert web_address(tmp_path) is None


@pytest.mark.parametrize(
    ("answer", "page"),
    [
        ({"resource_uri": "job://job-1", "job_id": "job-1"}, "/jobs/job-1"),
        ({"resource_uri": "agent://agent:clerk@2"}, "/agents/clerk@2"),
        ({"resource_uri": "comparison://cmp-1/picture"}, "/comparisons/cmp-1"),
        ({"resource_uri": "lineage://agent:clerk@2"}, "/lineage/agent%3Aclerk@2"),
        ({"trajectory": {"id": "traj-1"}}, "/runs/traj-1"),
        ({"resource_uri": None, "dataset_id": "ds-1"}, "/datasets/ds-1"),
        ({"dataset_id": "ds-/../x"}, "/datasets/ds-%2F..%2Fx"),
        ({"items": []}, None),
        ({"resource_uri": "guide://pipeline"}, None),
    ],
)
def test_an_answer_has_the_page_of_what_it_is_about(answer: dict[str, object], page: str | None) -> None:
    assert page_of(answer) == page


def test_a_call_that_names_nothing_has_no_page_of_one_thing() -> None:
    for tool in ("forget", "get_lineage"):
        assert page_of_call(call(tool)) is None
        assert page_of_call(call(tool, id="traj-1")) == "/lineage/traj-1"
