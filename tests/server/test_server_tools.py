"""Tools through the in-memory client, in both protocol eras."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from mcp import Client

from quintain.errors import Unavailable
from quintain.server.app import QuintainServer, build_server
from server.small_server import CATALOG, Shelf
from server.talks import ERAS, serve


async def refused(client: Client, tool: str, arguments: dict[str, object]) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert result.structured_content is None
    (block,) = result.content
    return block.text


@ERAS
def test_results_carry_the_same_facts_in_both_channels_and_what_no_protocol_carries_is_mended(
    small: QuintainServer, shelf: Shelf, mode: str
) -> None:
    async def talk(client: Client) -> None:
        edges = {"first": 1, "last": 4}
        result = await client.call_tool("add_note", {"title": "a", "text": "two\nlines", "edges": edges})
        (block,) = result.content
        assert "\n" not in block.text
        assert ": " not in block.text
        assert json.loads(block.text) == result.structured_content
        assert result.structured_content["extra"] == {"edges": 4, "mood": "good"}
        # A JSON string is read where an object is meant, and left alone where text is.
        await client.call_tool("add_note", {"title": "a", "text": '{"b": 1}', "edges": '{"first": 1, "last": 9}'})
        assert shelf.notes["a"].text == '{"b": 1}'
        assert shelf.notes["a"].extra["edges"] == 9
        odd = await client.call_tool("odd_note", {"kind": "surrogate"})
        assert not odd.is_error
        assert odd.structured_content["text"] == "cut emoji \ufffd"
        assert odd.structured_content["extra"]["loss"] is None
        assert json.loads(odd.content[0].text) == odd.structured_content
        picture = await client.call_tool("draw_note", {})
        assert [block.type for block in picture.content] == ["text", "image"]
        assert picture.structured_content is None
        assert picture.content[1].mime_type == "image/png"

    serve(small, mode, talk)


REFUSALS: list[tuple[str, dict[str, object], str, str]] = [
    ("add_note", {"title": "a", "page": 3}, "[unknown_argument] add_note has no argument 'page'",
     " (did you mean 'pages'?); valid: title, text"),
    ("add_note", {"title": "a", "pages": 0}, "[invalid_input] arguments.pages: ",
     ", got 0; valid `pages`: 1..200; correct it and call add_note again"),
    ("add_note", {"title": "a", "mood": "so-so"}, "[invalid_input]", "mood: expected one of good, bad, got 'so-so'; "),
    ("add_note", {"title": "a", "mood": "goood"}, "[invalid_input]", "got 'goood' (did you mean 'good'?); correct it"),
    ("add_note", {"title": "a", "edges": {"first": -1}}, "[invalid_input]", "arguments.edges.first"),
    ("add_note", {}, "[invalid_input]", "arguments.title is required"),
    ("add_note", {"title": "a", "edges": '{"first": NaN}'}, "[not_finite]", "nan"),
    ("get_note", {"title": "b"}, "[not_found]", "there is no note 'b'"),
    ("gets_note", {}, "[unknown_tool]", "there is no tool 'gets_note' (did you mean 'get_note'?)"),
    ("odd_note", {"kind": "crash"}, "[internal] odd_note", "the log of the server"),
]  # fmt: skip
"""Tool, arguments, the beginning of the refusal, and what else it says."""


def test_our_errors_reach_the_model_in_full_and_others_not_at_all(
    small: QuintainServer, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(client: Client) -> None:
        for tool, arguments, start, words in REFUSALS:
            text = await refused(client, tool, arguments)
            assert text.startswith(start), text
            assert words in text, text
            assert "shadow" not in text
        assert shelf.notes == {}

    serve(small, "auto", talk)
    assert "the secret is in /etc/shadow" in caplog.text


@ERAS
def test_a_watch_reports_growing_progress_and_answers_with_its_last_record(small: QuintainServer, mode: str) -> None:
    async def talk(client: Client) -> None:
        seen: list[tuple[float, float | None, str | None]] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, total, message))

        result = await client.call_tool("count", {"steps": 5}, progress_callback=note)
        assert result.structured_content == {"step": 5, "total_steps": 5, "phase": "counting"}
        assert seen == sorted(set(seen))
        assert seen[-1] == (5.0, 5.0, "counting")
        assert len(seen) > 1

    serve(small, mode, talk)


def test_the_services_stay_open_until_a_cancelled_call_has_written(small: QuintainServer, shelf: Shelf) -> None:
    async def talk(client: Client) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "slow_note", {"title": "kept"})
            await anyio.to_thread.run_sync(shelf.entered.wait, 100)
            tasks.cancel_scope.cancel()
            shelf.go_on.set()

    serve(small, "auto", talk)
    assert shelf.notes["kept"].text == "written while open"
    assert shelf.closed.is_set()


@ERAS
def test_the_list_of_tools_is_sorted_and_says_what_each_tool_may_do(small: QuintainServer, mode: str) -> None:
    async def talk(client: Client) -> None:
        listed = await client.list_tools()
        assert mode == "legacy" or listed.ttl_ms == 60_000
        tools = {tool.name: tool for tool in listed.tools}
        assert list(tools) == sorted(spec.name for spec in CATALOG)
        add = tools["add_note"]
        assert (add.title, add.description) == ("Add a note", "Put a note on the shelf.\n\nThe text is kept as it is.")
        assert add.input_schema["additionalProperties"] is False
        assert add.input_schema["properties"]["pages"] == {
            "default": 1, "description": "How many pages.", "maximum": 200, "minimum": 1, "type": "integer"
        }  # fmt: skip
        assert add.input_schema["properties"]["text"] == {"type": "string"}
        assert add.output_schema["properties"]["pages"] == {"type": "integer"}
        assert add.output_schema["properties"].keys().isdisjoint({"title", "value"})
        assert add.output_schema["required"] == ["title", "text", "value", "extra"], (
            "texts, objects and what may be null"
        )
        assert "description" not in json.dumps(add.output_schema)
        assert tools["draw_note"].output_schema is None
        hints = tools["odd_note"].annotations
        assert (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint) == (
            None, True, None, False
        )  # fmt: skip

    serve(small, mode, talk)


def test_a_home_that_cannot_be_opened_is_told_and_tried_again(home: Path, shelf: Shelf) -> None:
    def open_shelf() -> Shelf:
        if not (home / "ready").exists():
            raise Unavailable("the home folder cannot be written; free some space")
        return shelf

    async def talk(client: Client) -> None:
        assert (await refused(client, "get_note", {"title": "a"})).startswith("[unavailable] the home folder")
        assert [str(r.uri) for r in (await client.list_resources()).resources] == [
            "guide://pipeline",
            "guide://curation",
        ]
        (home / "ready").touch()
        assert (await refused(client, "get_note", {"title": "a"})).startswith("[not_found]")

    serve(build_server(CATALOG, open_shelf), "legacy", talk)  # type: ignore[arg-type]
    assert shelf.closed.is_set()


def test_services_whose_first_user_went_away_while_they_opened_are_closed(shelf: Shelf) -> None:
    opened: list[Shelf] = []

    def open_shelf() -> Shelf:
        shelf.entered.set()
        assert shelf.go_on.wait(100)
        opened.append(shelf)
        return shelf

    async def talk(client: Client) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "get_note", {"title": "a"})
            await anyio.to_thread.run_sync(shelf.entered.wait, 100)
            tasks.cancel_scope.cancel()
            shelf.go_on.set()

    serve(build_server(CATALOG, open_shelf), "auto", talk)  # type: ignore[arg-type]
    assert opened == [shelf]
    assert shelf.closed.is_set()
