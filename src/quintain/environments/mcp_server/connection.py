"""A connection to one server: the official client on an event loop in the background, calls from any thread.

What a tool answers is an `Answer`, errors of the protocol too, for the server is alive and the agent can go on. A server that
dies, hangs, answers what its own schema forbids or writes without end is `Unavailable`: it costs its episode.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from contextlib import suppress
from functools import cache
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp.client.stdio import get_default_environment
from mcp.types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolListChangedNotification,
)

from quintain.environments.mcp_server.answer import Answer
from quintain.environments.mcp_server.transport import Wire, stdio
from quintain.environments.servers import Call, ServerProfile
from quintain.errors import Unavailable

_PAGES, _TOOLS = 100, 2000
_ALIVE_S = 5.0
_HOST = Implementation(name="quintain", version="1")


class Connection:
    """A running server; single-threaded use. `close` ends it.

    Raises:
        Unavailable: it does not start, does not speak the protocol, or a call before the first episode fails.
    """

    def __init__(self, profile: ServerProfile, variables: dict[str, str]) -> None:
        self._profile = profile
        self._folder = None if profile.cwd else tempfile.mkdtemp(prefix="quintain-mcp-")
        env = get_default_environment() | {"PWD": profile.cwd or str(self._folder)} | variables | profile.env
        self._wire = Wire((profile.command, *profile.args), env, profile.cwd or str(self._folder), self._folder)
        self._client: Client | None = None
        self._ready: Future[None] = Future()
        self.tools: tuple[dict[str, Any], ...] = ()
        """All that the server offers, in the OpenAI function style, names and schemas as they are."""
        self.read_only: dict[str, bool | None] = {}
        """What the server says of each tool."""
        self.changes = 0
        """Announcements of a changed list of tools; the first list holds."""
        _living.add(self)
        self._done = asyncio.run_coroutine_threadsafe(self._serve(), _loop())
        try:
            self._ready.result(profile.start_timeout_s)
            for call in profile.setup:
                self.require(call)
        except NotInTime:
            self.close()
            raise self._unavailable("did not start", f"within {profile.start_timeout_s:g} s", "timeout") from None
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Does the server still speak?"""
        return not self._wire.ended and not self._done.done()

    @property
    def garbage(self) -> int:
        """Lines so far that were no messages."""
        return self._wire.garbage

    def call(self, tool: str, args: dict[str, Any]) -> Answer:
        """Call a tool.

        Raises:
            Unavailable: the server died, hangs, or broke its own rules.
        """
        if not self.alive:
            raise self._unavailable("has ended")
        return asyncio.run_coroutine_threadsafe(self._call(tool, args), _loop()).result()

    def require(self, call: Call) -> Answer:
        """A call that the operator asks for and that must succeed.

        Raises:
            Unavailable: it fails.
        """
        answer = self.call(call.tool, call.args)
        if answer.is_error:
            raise self._unavailable(f"refused the call {call.tool} that prepares an episode", answer.text, "setup")
        return answer

    def close(self) -> None:
        """End the server; does not wait for it."""
        if not self._ready.done():
            self._wire.kill()
        self._done.cancel()

    async def _serve(self) -> None:
        try:
            async with Client(stdio(self._wire), message_handler=self._hear, client_info=_HOST) as client:
                await self._list(client)
                self._client = client
                self._ready.set_result(None)
                await anyio.sleep_forever()
        except Exception as error:  # the border: whatever a start ends in is told to the thread that waits for it
            if not self._ready.done():
                self._ready.set_exception(self._unavailable("did not start", _reason(error), "died"))
        finally:
            self._remove_folder()
            _living.discard(self)

    def _remove_folder(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _list(self, client: Client) -> None:
        tools: list[Tool] = []
        cursor = None
        for _ in range(_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor or len(tools) > _TOOLS:
                break
        if cursor or len(tools) > _TOOLS:
            raise ValueError(f"it lists more than {_TOOLS} tools or {_PAGES} pages")
        self.tools = tuple(_schema(tool) for tool in tools)
        self.read_only = {tool.name: tool.annotations.read_only_hint if tool.annotations else None for tool in tools}

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.changes += 1

    async def _call(self, tool: str, args: dict[str, Any]) -> Answer:
        assert self._client is not None
        try:
            with anyio.fail_after(self._profile.timeout_s):
                return _answer(await self._client.call_tool(tool, args))
        except TimeoutError:
            return await self._late(tool)
        except MCPError as error:
            if self._wire.ended:
                raise self._unavailable("died", _reason(error), "died") from None
            return Answer(f"Error: {error.error.message[:1000]} (code {error.error.code})", is_error=True)
        except (RuntimeError, ValueError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise self._unavailable(f"answered {tool} wrongly", _reason(error), "garbage") from None

    async def _late(self, tool: str) -> Answer:
        """A slow tool is what the agent chose; a server that does not even list its tools meanwhile hangs."""
        with anyio.move_on_after(min(_ALIVE_S, self._profile.timeout_s)), suppress(MCPError, RuntimeError):
            assert self._client is not None
            await self._client.list_tools(cache_mode="bypass")
            return Answer(f"Error: {tool} did not answer within {self._profile.timeout_s:g} s.", is_error=True)
        self._wire.kill()
        raise self._unavailable("hangs", f"no answer to {tool} within {self._profile.timeout_s:g} s", "timeout")

    def _unavailable(self, what: str, why: str = "", code: str = "died") -> Unavailable:
        told = self._wire.told.decode("utf-8", "replace").strip()
        parts = [why, self._wire.fault, f"it wrote: {told[-400:]!r}" if told else None]
        detail = "; ".join(part for part in parts if part)
        return Unavailable(f"the MCP server of {self._profile.id} {what}: {detail}"[:1000], code=f"environment_{code}")


def _schema(tool: Tool) -> dict[str, Any]:
    """A tool in the OpenAI function style."""
    function = {"name": tool.name, "description": tool.description or tool.title or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _answer(result: CallToolResult) -> Answer:
    text = "\n".join(_shown(part) for part in result.content)
    value = result.structured_content
    if value is None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
    elif not _says(text, value):
        text = "\n".join(part for part in (text, json.dumps(value, ensure_ascii=False)) if part)
    return Answer(text, value, bool(result.is_error))


def _says(text: str, value: dict[str, Any]) -> bool:
    """Does the text hold the structured content, as the protocol asks for? A lone value is wrapped in `result`."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = text
    return read in (value, value.get("result")) or text == str(value.get("result"))


def _shown(part: object) -> str:
    match part:
        case TextContent():
            return part.text
        case ImageContent() | AudioContent():
            kind = "picture" if isinstance(part, ImageContent) else "sound"
            return f"[a {kind}, {part.mime_type}, {len(part.data) * 3 // 4:,} bytes, not shown]"
        case ResourceLink():
            return f"[resource {part.uri}]"
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return resource.text
        case EmbeddedResource():
            return f"[resource {part.resource.uri}, not text, not shown]"
    return "[content of an unknown kind, not shown]"


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


_living: set[Connection] = set()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The event loop of all connections; its thread is a daemon, for no program should wait for it to end."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="mcp-servers", daemon=True).start()
    atexit.register(_end_all)
    return loop


def _end_all() -> None:
    for connection in list(_living):
        connection._wire.kill()
        connection._remove_folder()
