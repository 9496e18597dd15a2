"""Lists over the protocol: no answer is too long for a context, the cursor leads to the rest, no path of the installation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import quintain
from mcp_client import ToolCaller
from quintain.tools.pages import MAX_PAGE_BYTES, count_fitting
from quintain.tools.services import Services
from quintain.tools.training.methods import METHODS
from quintain.tools.training.model_folders import starter_folder
from tools.stored_records import add_runs
from trajectory_runs import answer, run, user

MOST = MAX_PAGE_BYTES + 2_000
"""Bytes of a whole answer: the page, its frame and `next_step`."""


def pages(ask: ToolCaller, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """The entries of all pages, each page within the bound in both channels."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        result = ask.raw(tool, **arguments, **({"cursor": cursor} if cursor else {}))
        assert not result.is_error, result.content[0].text
        assert len(result.content[0].text.encode()) < MOST
        found += result.structured_content["items"]
        cursor = result.structured_content["next_cursor"]
        if cursor is None:
            return found


def test_long_lists_end_where_an_answer_would_be_too_long_and_go_on_by_the_cursor(
    services: Services, ask: ToolCaller
) -> None:
    """200 runs of long names, and 12 agents with long prompts."""
    names = [f"t{i}" for i in range(200)]
    long = (run(name, user(f"case {name} " + "ä" * 150), answer(), tags=(f"batch-{'x' * 60}",)) for name in names)
    add_runs(services, *long)
    assert 20 < len(ask("search_trajectories", limit=200)["items"]) < 200
    assert [one["task_id"] for one in pages(ask, "search_trajectories", limit=200)] == names[::-1]
    for i in range(12):
        ask("register_agent", name=f"clerk-{i}", model="starter", system_prompt=f"{i} " * 4000)
    agents = pages(ask, "list_library", kind="agents", limit=200)
    assert [one["name"] for one in agents] == [*(f"clerk-{i}" for i in range(11, -1, -1)), "starter"]
    assert [one["method"] for one in pages(ask, "list_library", kind="methods")] == ["*", *METHODS]
    (refused,) = ask.refused("list_library", {"kind": "methods", "cursor": "x"})
    assert refused.startswith("[bad_cursor] expected a cursor of this list, got 'x'")


def test_stored_things_are_found_by_words_of_their_ids_and_names(ask: ToolCaller) -> None:
    for name in ("clerk-a", "clerk-b", "100%_clerk"):
        ask("register_agent", name=name.replace("%", "x"), model="starter", description=name)

    def named(kind: str, text: str) -> list[str]:
        return [one["name"] for one in ask("list_library", kind=kind, text=text)["items"]]

    assert named("agents", "CLERK-") == ["clerk-b", "clerk-a"]
    assert named("agents", "clerk-b @1") == ["clerk-b"]
    assert named("agents", "%") == [], "a percent sign is a character, not a pattern"
    assert named("datasets", "clerk") == []
    (starter,) = ask("list_library", kind="agents", text="starter@1")["items"]
    files = [path for path in Path(starter_folder()).rglob("*") if path.is_file()]
    assert starter["size_bytes"] == sum(path.stat().st_size for path in files)
    (refused,) = ask.refused("list_library", {"kind": "calibrations", "text": "x"})
    assert "leave it out and page by cursor" in refused


def test_an_entry_longer_than_a_page_comes_alone() -> None:
    assert count_fitting([]) == 0
    assert count_fitting(["a" * MAX_PAGE_BYTES, "b"]) == 1
    assert count_fitting(["b", "a" * MAX_PAGE_BYTES]) == 1
    # Each entry has two quotes and a comma; an umlaut has two bytes.
    assert count_fitting(["ä" * 60] * 1000) == MAX_PAGE_BYTES // 123


def test_no_answer_about_an_agent_names_the_folder_of_the_installation(ask: ToolCaller) -> None:
    registered = ask.raw("register_agent", name="clerk", model="starter")
    assert registered.structured_content["agent"]["model"]["path"] == "starter"
    listed = ask.raw("list_library", kind="agents")
    assert {one["model"]["path"] for one in listed.structured_content["items"]} == {"starter"}
    plan = ask.raw("plan_training", method="grpo", environment="quintain/inventory")
    texts = [str(one.structured_content) + one.content[0].text for one in (registered, listed, plan)]
    texts += [ask.read(uri).text for uri in ("agent://agent:clerk@1", "lineage://agent:clerk@1")]
    assert not [text for text in texts if str(Path(quintain.__file__).parent) in text]
