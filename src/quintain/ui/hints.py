"""Hints for persons: a call is a link to the page that does the same, else a command of the terminal."""

from __future__ import annotations

from collections.abc import Callable

from quintain.errors import NotFound
from quintain.next_step import ToolCall
from quintain.tools.catalog import tool
from quintain.tools.web_address import page_of_call

Written = Callable[[ToolCall], str]


def for_person(command_line: Written) -> Written:
    """Return how the page names a call: `[title](path)`, or its command between backticks."""

    def written(call: ToolCall) -> str:
        try:
            title = tool(call.tool).title
        except NotFound:
            return str(call)
        path = page_of_call(call)
        return f"[{title}]({path})" if path is not None else f"`{command_line(call)}`"

    return written
