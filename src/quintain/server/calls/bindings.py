"""A tool specification bound to the protocol: its listing, the check of its arguments, the call and the result.

Descriptions and schemas are kept in `listings.json`, so that a server lists its tools without importing them.
`python -m scripts.make_tool_reference` writes the file from the catalog; a test compares the two.
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from mcp.types import CallToolResult, ContentBlock, ImageContent, TextContent, Tool, ToolAnnotations

from quintain.errors import InvalidInput, Refused
from quintain.next_step import ToolCall
from quintain.records.record import Record
from quintain.server.apps import TOOL_META, app_data
from quintain.server.calls.record_json import facts, scrub
from quintain.tools.catalog import IllustratedRecord, Picture, ToolSpec
from quintain.tools.invocation import check
from quintain.tools.web_address import page_url

if TYPE_CHECKING:
    from quintain.tools.services import Services

LISTINGS_FILE = Path(__file__).parents[1] / "listings.json"

Listing = dict[str, Any]
"""`description`, `input_schema` and `output_schema` of a tool."""

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]


async def no_report(progress: float, total: float | None, text: str | None) -> None:
    """Report the progress of a call to nobody."""


@dataclass(frozen=True)
class Binding:
    """One tool as this server offers it."""

    spec: ToolSpec
    listing: Tool
    read_only: bool = False
    """Whether this server refuses what changes anything."""
    written: Callable[[ToolCall], str] = str
    """How hints in its results and errors name calls."""


def bind_all(
    catalog: Sequence[ToolSpec], *, toolsets: Sequence[str] | None = None, read_only: bool = False
) -> dict[str, Binding]:
    """Return the chosen tools of a catalog by name, each with its listing; arguments as `select`."""
    chosen = select(catalog, toolsets=toolsets, read_only=read_only)
    left_out = {spec.name for spec in catalog if spec not in chosen}

    def written(call: ToolCall) -> str:
        return f"{call} (left out by this server)" if call.tool in left_out else str(call)

    return {spec.name: replace(bind(spec), read_only=read_only, written=written) for spec in chosen}


def bind(spec: ToolSpec) -> Binding:
    """Return a tool with its listing: from the file of the catalog, or derived where it is not in there."""
    known = stored_listings().get(spec.name) if isinstance(spec.source, str) else None
    reads = spec.read_only and not spec.writes_with
    # By the protocol the other two hints mean something only where a tool changes anything; read-only and idempotent are false by default.
    changes = {} if reads else {"destructive_hint": spec.destructive, "idempotent_hint": spec.idempotent or None}
    hints = ToolAnnotations(read_only_hint=reads or None, open_world_hint=spec.open_world, **changes)
    listing = known if known is not None else derived_listing(spec)
    tool = Tool(name=spec.name, title=spec.title, annotations=hints, meta=TOOL_META if spec.app else None, **listing)
    return Binding(spec, tool)


def derived_listing(spec: ToolSpec) -> Listing:
    """Return the listing of a tool from the signature and docstring of its function."""
    from quintain.server.calls.schemas import input_schema, output_schema
    from quintain.tools.invocation import arguments_model

    results = {"type": "object", "description": f"As of {spec.answers_as}."} if spec.answers_as else None
    return {
        "description": inspect.getdoc(spec.function),
        "input_schema": input_schema(arguments_model(spec)),
        "output_schema": None if spec.picture else results or output_schema(spec.function),
    }


@cache
def stored_listings() -> dict[str, Listing]:
    """Return the listings of the catalog, by name of the tool."""
    listings: dict[str, Listing] = json.loads(LISTINGS_FILE.read_text(encoding="utf-8"))
    return listings


def select(
    catalog: Sequence[ToolSpec], *, toolsets: Sequence[str] | None = None, read_only: bool = False
) -> tuple[ToolSpec, ...]:
    """Return the tools of some toolsets (None: all), sorted by name; only those that change nothing where `read_only`.

    Every set works on stored things and may start jobs, so the reading tools of `data` and those of `jobs` come with it.

    Raises:
        InvalidInput: a toolset without tools.
    """
    known = sorted({spec.toolset for spec in catalog})
    unknown = sorted(set(toolsets or ()) - set(known))
    if unknown:
        raise InvalidInput(f"there is no toolset {unknown[0]!r}; valid: {', '.join(known)}")
    wanted = {*(toolsets or known), "jobs"}
    chosen = (s for s in catalog if s.toolset in wanted or (s.toolset == "data" and s.read_only))
    return tuple(sorted((s for s in chosen if s.read_only or not read_only), key=lambda spec: spec.name))


async def call(
    binding: Binding, received: Mapping[str, Any], services: Services, report: ReportProgress = no_report
) -> CallToolResult:
    """Check the arguments, run the tool in a worker thread, and put its answer in both channels of a result.

    A started function is never abandoned: when the client goes away, what it began to write is finished.

    Raises:
        QuintainError: whatever the checks or the tool refuse.
    """
    if binding.spec.watch is None:
        return await anyio.to_thread.run_sync(_run, binding, received, services)
    arguments = await anyio.to_thread.run_sync(read_arguments, binding, received)
    record = await _watch(partial(binding.spec.watch, services, **arguments), services.settings.poll_s, report)
    return await anyio.to_thread.run_sync(to_result, binding, record, services.settings.home)


def _run(binding: Binding, received: Mapping[str, Any], services: Services) -> CallToolResult:
    value = binding.spec.function(services, **read_arguments(binding, received))
    return to_result(binding, value, services.settings.home)


async def _watch(begin: Callable[[], Iterator[Record]], poll_s: float, report: ReportProgress) -> Record:
    """Follow a waiting tool to its last record; reports progress when the step grows.

    Each round draws two records: a finished watch ends its iterator, and is then answered without another pause.
    """
    records = await anyio.to_thread.run_sync(begin)
    last: Record | None = None
    reported = -1.0
    while True:
        drawn = await anyio.to_thread.run_sync(lambda: list(islice(records, 2)))
        last = drawn[-1] if drawn else last
        if last is None:
            raise RuntimeError("a watch ended without a record")
        step = float(getattr(last, "step", 0) or 0)
        if step > reported:
            reported = step
            await report(step, getattr(last, "total_steps", None), getattr(last, "phase", None))
        if len(drawn) < 2:
            return last
        await anyio.sleep(poll_s)


def read_arguments(binding: Binding, received: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call as the function takes them.

    Raises:
        UnknownField, InvalidInput: as `check`.
        Refused: the call would start work on a read-only server.
    """
    arguments = check(binding.spec, received)
    if binding.read_only and (switch := binding.spec.writes_with) and arguments.get(switch):
        raise Refused(
            f"expected {switch}=false, got true on a read-only server; leave {switch!r} out", code="read_only"
        )
    return arguments


def to_result(binding: Binding, value: Record | Picture, home: Path) -> CallToolResult:
    """Both channels of a result: `structuredContent`, and text with the same facts for clients that show only one.

    While a web page shows the home, `ui_url` names the page of what the result is about.
    """
    if isinstance(value, Picture):
        picture = [] if value.png is None else [_image(value.png)]
        text_block = TextContent(type="text", text=scrub(value.text))
        return CallToolResult(content=[text_block, *picture], meta=app_data(value.figure, value.job))
    text, values = facts(value, binding.written)
    if (url := page_url(home, values)) is not None:
        values = {**values, "ui_url": url}
        text = f'{text[:-1]},"ui_url":{json.dumps(url)}}}'
    content: list[ContentBlock] = [TextContent(type="text", text=text)]
    if isinstance(value, IllustratedRecord) and value.png is not None:
        content.append(_image(value.png))
    meta = app_data(value.figure, None) if isinstance(value, IllustratedRecord) else None
    return CallToolResult(content=content, structured_content=values, meta=meta)


def _image(png: bytes) -> ImageContent:
    return ImageContent(type="image", data=base64.b64encode(png).decode("ascii"), mime_type="image/png")
