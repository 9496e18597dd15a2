"""The one place where failures become what the model reads: `[code] what was wrong; what is valid; what to call next`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal

from mcp import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolResult, TextContent

from quintain.errors import InvalidInput, NotFound, QuintainError, explained
from quintain.next_step import Hint, ToolCall
from quintain.records.wording import nearest
from quintain.server.calls.record_json import scrub
from quintain.tools.catalog import CATALOG

logger = logging.getLogger(__name__)

_SECRETS: tuple[Literal["secrets"]] = ("secrets",)


def tool_failure(
    tool: str, error: Exception, hidden: Path | None = None, written: Callable[[ToolCall], str] = str
) -> CallToolResult:
    """The result of a call that raised: our own errors without secrets that they quote, any other without its text.

    The text of any other goes to the log. An error without a remedy gets the one that every call has. `hidden` is the home folder,
    whose path this client does not see; `written` is how the remedy names calls.
    """
    error = explained(error)
    if isinstance(error, QuintainError):
        message = Hint(error.message).render(written)
        text = _shown(f"[{error.code}] {message}", hidden)
        if not error.remedy:
            text += f"; correct the arguments and call {written(ToolCall(scrub(tool)[:100], {}))} again"
    else:
        logger.error("tool %r raised an unexpected exception", tool, exc_info=error)
        text = (
            f"[internal] {tool} failed with an unexpected error; the details are in the log of the server (stderr); try "
            "again, and if it fails again ask the user to read the log"
        )
    return CallToolResult(is_error=True, content=[TextContent(type="text", text=scrub(text))])


def _without_secrets(text: str) -> str:
    from quintain.redaction.redact import redact_text  # loaded with the first error

    return redact_text(scrub(text), _SECRETS)[0]


def _shown(text: str, hidden: Path | None) -> str:
    text = _without_secrets(text)
    return text if hidden is None else text.replace(str(hidden), "the home folder")


def protocol_failure(what: str, error: Exception, hidden: Path | None = None) -> MCPError:
    """The protocol error for a resource, prompt or completion request that raised; `hidden` as of `tool_failure`."""
    error = explained(error)
    if isinstance(error, QuintainError):
        code = INVALID_PARAMS if isinstance(error, (NotFound, InvalidInput)) else INTERNAL_ERROR
        text = _shown(str(error), hidden) + ("" if error.remedy else "; correct it and ask again")
        return MCPError(code=code, message=text, data={"uri": _without_secrets(what)})
    logger.error("reading %r raised an unexpected exception", what, exc_info=error)
    return MCPError(
        code=INTERNAL_ERROR, message="[internal] unexpected error; the server's log (stderr) has the details"
    )


def unknown_tool(name: str, known: Collection[str]) -> NotFound:
    """A tool that this server does not have, or not with these switches."""
    valid = ", ".join(sorted(known)) or "none"
    if any(spec.name == name for spec in CATALOG):
        reason = f"{name} is left out by this server, which was started with --toolsets or --read-only"
    else:
        reason = f"there is no tool {name!r}{nearest(name, known)}"
    return NotFound(f"{reason}; valid: {valid}", code="unknown_tool")
