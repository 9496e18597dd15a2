"""An assistant without a language model: it knows `tools/list` and the answers, and counts what both cost."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import ImageContent, TextContent, TextResourceContents

CHARACTERS_PER_TOKEN = 4
_ENDED = {"succeeded", "failed", "cancelled", "interrupted"}


class WishFailed(Exception):
    """A wish did not reach its end."""


class NamedCall(NamedTuple):
    """A call that an answer names."""

    tool: str
    arguments: dict[str, Any]


class Answer(NamedTuple):
    """What a call returned."""

    facts: dict[str, Any]
    texts: tuple[str, ...]
    pictures: int


class Assistant:
    """A client of the shipped server that calls tools by name and follows the calls that answers name."""

    def __init__(self, client: Client, home: Path, tools: list[Any]) -> None:
        self.client, self.home = client, home
        self.tools = {tool.name: tool for tool in tools}
        self.calls = self.waits = self.errors = self.characters = 0
        self.kept: dict[str, Any] = {}
        """What the user already has, by name."""
        self._counting = True

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the facts of a call that must succeed."""
        return (await self.answer(tool, **arguments)).facts

    async def answer(self, tool: str, /, **arguments: Any) -> Answer:
        """Return everything that a call returned.

        Raises:
            WishFailed: The server lists no such tool, or refuses the call.
        """
        is_error, answer = await self._send(tool, arguments)
        if is_error:
            raise WishFailed(f"{tool}({json.dumps(arguments)}) was refused: {' '.join(answer.texts)}")
        return answer

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """Return the error of a call that must be refused."""
        is_error, answer = await self._send(tool, arguments)
        require(is_error, f"{tool} was expected to refuse {arguments}")
        return " ".join(answer.texts)

    async def _send(self, tool: str, arguments: dict[str, Any]) -> tuple[bool, Answer]:
        require(tool in self.tools, f"the server lists no tool {tool!r}")
        result = await self.client.call_tool(tool, arguments)
        texts = tuple(part.text for part in result.content if isinstance(part, TextContent))
        if self._counting:
            self.calls += 1
            self.errors += bool(result.is_error)
            self.characters += len(json.dumps(arguments)) + sum(map(len, texts))
        pictures = sum(isinstance(part, ImageContent) for part in result.content)
        return bool(result.is_error), Answer(dict(result.structured_content or {}), texts, pictures)

    async def read(self, uri: str) -> str:
        """Return the text of a resource that an answer names."""
        (content,) = (await self.client.read_resource(uri)).contents
        assert isinstance(content, TextResourceContents)
        if self._counting:
            self.calls += 1
            self.characters += len(uri) + len(content.text)
        return content.text

    def named(self, text: str, tool: str = "") -> NamedCall:
        """Return the first call in a text that can be made as it stands, of a tool if one is named.

        Raises:
            WishFailed: The text names none.
        """
        for found in self._calls_in(text):
            if tool in {"", found.tool}:
                return found
        raise WishFailed(f"expected a call{' of ' + tool if tool else ''} to go on with, got {text!r}")

    def _calls_in(self, text: str) -> Iterator[NamedCall]:
        for match in re.finditer(rf"\b({'|'.join(self.tools)})\(", text):
            for end in (i + 1 for i, character in enumerate(text) if character == ")" and i > match.start()):
                try:
                    node = ast.parse(text[match.start() : end], mode="eval").body
                    assert isinstance(node, ast.Call)
                    arguments = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
                except (SyntaxError, ValueError):
                    continue
                if _is_complete(arguments):
                    yield NamedCall(match[1], arguments)
                break

    async def follow(self, facts: dict[str, Any], tool: str = "", **changes: Any) -> dict[str, Any]:
        """Make the call that the `next_step` of an answer names, with further arguments."""
        found = self.named(facts["next_step"], tool)
        return await self.call(found.tool, **{**found.arguments, **changes})

    async def ended(self, started: dict[str, Any]) -> dict[str, Any]:
        """Follow a job by `next_step` to its end. Calls after the first are waits: a faster machine needs none."""
        view = await self.follow(started, "get_job")
        while view["status"] not in _ENDED:
            view = await self.follow(view, "get_job")
            self.waits += self._counting
        return view

    async def done(self, started: dict[str, Any]) -> dict[str, Any]:
        """Follow a job to its success."""
        view = await self.ended(started)
        require(view["status"] == "succeeded", f"{view['label']} ended as {view['status']}: {view['error']}")
        return view

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Leave out of the count what only makes what the user already has."""
        before, self._counting = self._counting, False
        try:
            yield
        finally:
            self._counting = before


def _is_complete(arguments: dict[str, Any]) -> bool:
    """Whether no value is left to the caller (`...`)."""
    try:
        json.dumps(arguments)
    except TypeError:
        return False
    return True


def require(condition: object, why: str) -> None:
    """Raise `WishFailed` where a condition does not hold."""
    if not condition:
        raise WishFailed(why)


@asynccontextmanager
async def connected(home: Path) -> AsyncIterator[Assistant]:
    """Start the shipped server on a home folder, as a client starts it, and list its tools."""
    command = Path(sys.executable).with_name("quintain")
    arguments = ["serve", "--home", str(home)]
    if not command.exists():
        command, arguments = Path(sys.executable), ["-m", "quintain.cli.main", *arguments]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    async with Client(StdioServerParameters(command=str(command), args=arguments, env=env)) as client:
        with anyio.fail_after(60):
            listed = await client.list_tools()
        yield Assistant(client, home, listed.tools)
