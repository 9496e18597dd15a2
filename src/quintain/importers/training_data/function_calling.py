"""Function calling rows of xLAM and APIGen: a query, the tools, and the calls that answer it, as JSON or as JSON text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, matching_share, row_importer
from quintain.importers.transcripts.tool_schemas import parse_tool_schemas
from quintain.importers.values import as_dict, as_list, dicts_in, nonblank, parse_json_text


def _detect(probe: Probe) -> float:
    """Match queries whose answers are calls."""
    return 0.95 * matching_share(probe, _fits, "answers")


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    calls = [{"function": call} for call in dicts_in(parse_json_text(row.get("answers")))]
    messages = [{"role": "user", "content": row.get("query")}, {"role": "assistant", "tool_calls": calls}]
    columns = {key: value for key, value in row.items() if key not in ("query", "answers", "tools")}
    tools = [_with_properties(tool) for tool in parse_tool_schemas(row.get("tools"))]
    yield from build_chat_run(messages, columns, line, report, tools=tools)


IMPORTER = row_importer("function_calling", "Function calling rows", _detect, _row)


def _fits(row: dict[str, Any]) -> bool:
    calls = as_list(parse_json_text(row.get("answers")))
    return nonblank(row.get("query")) is not None and bool(calls) and all(map(_is_call, calls))


def _is_call(value: Any) -> bool:
    return isinstance(value, Mapping) and nonblank(value.get("name")) is not None and "arguments" in value


def _with_properties(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool whose parameters are a schema; those of the rows may be the properties alone."""
    function = as_dict(tool["function"])
    given = as_dict(function.get("parameters"))
    is_schema = given.get("type") == "object" or not all(isinstance(each, Mapping) for each in given.values())
    return (
        tool if is_schema else {**tool, "function": {**function, "parameters": {"type": "object", "properties": given}}}
    )
