"""Folders that tools may read: the inbox, the datasets, the exports, and the folders of the operator."""

from __future__ import annotations

import anyio
import pytest
from mcp import Client

from mcp_client import call
from quintain.server.app import build_server
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.services import open_services

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


def test_only_three_folders_of_the_home_folder_are_read(folders: Settings) -> None:
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
    shared = (
        ".",
        "notes.txt",
        "../datasets",
        "../exports/notes.txt",
        "exports/notes.txt",
        "inbox",
        str(folders.inbox_dir),
    )

    async def main() -> None:
        async with Client(build_server(CATALOG, lambda: open_services(folders))) as client:

            async def answer(tool: str, **arguments: object) -> str:
                return (await client.call_tool(tool, arguments)).content[0].text  # type: ignore[union-attr]

            for path in private:
                for told in (
                    await answer("export_dataset", kind="text", name="x", path=path),
                    await answer("import_trajectories", path=path),
                    await answer("register_agent", name="x", model=path),
                    await answer("score_trajectories", scorer="rules", profile=f"{path}/a.json"),
                ):
                    assert "host.internal" not in told
                    assert "[outside_roots]" in told or (path[0] not in "./~" and "not_found]" in told), (path, told)
            for number, path in enumerate(shared):
                made = await call(client, "export_dataset", kind="text", name=f"d{number}", path=path)
                assert made["rows"] >= 1, path
            assert "[outside_roots]" not in await answer("import_trajectories", path="../exports")

    anyio.run(main)
