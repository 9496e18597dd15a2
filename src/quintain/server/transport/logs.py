"""The server's own log on standard error: a line of JSON a record, plain text on a terminal; standard output is the protocol's."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from mcp.server import ServerRequestContext
from mcp.types import CallToolResult
from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from quintain.records.text import printable
from quintain.server.audience import is_at_least, log_message
from quintain.server.lifespan import Running


class JsonFormatter(logging.Formatter):
    """One line of ASCII a record: whatever a message quotes, it can neither start a line nor steer a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON: time in UTC, level, logger, message, and the traceback of its exception."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields).replace("\x7f", "\\u007f")


class _PlainFormatter(logging.Formatter):
    """Text for a terminal, whose control and hidden characters are shown as codes."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(printable(line) for line in super().format(record).splitlines())


def log_to_stderr() -> None:
    """Log warnings and errors to standard error, unless logging is configured."""
    handler = logging.StreamHandler(sys.stderr)
    plain = _PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(plain if sys.stderr.isatty() else JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class RequestLog:
    """The log of one tool call.

    A request of 2026-07-28 names its level in `_meta`; a session of the handshake era has set it before.
    """

    def __init__(self, ctx: ServerRequestContext[Running], tool: str) -> None:
        self._ctx = ctx
        self._source = f"quintain.{tool}"
        self._phase: str | None = None
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            meta: Any = ctx.meta or {}
            self._level = meta.get(LOG_LEVEL_META_KEY)
        else:
            self._level = ctx.lifespan_context.audience.client(ctx.session).level

    async def send(self, level: LoggingLevel, text: str) -> None:
        """Send a message if the client wants its level."""
        if is_at_least(level, self._level):
            await self._ctx.session.send_notification(log_message(level, self._source, text), self._ctx.request_id)

    async def report_progress(self, progress: float, total: float | None, phase: str | None) -> None:
        """Report the progress of a call, and log each phase once."""
        await self._ctx.session.report_progress(progress, total, phase)
        if phase and phase != self._phase:
            self._phase = phase
            await self.send("info", f"phase {phase}")

    async def result(self, result: CallToolResult) -> None:
        """Log the warnings in an answer."""
        for warning in (result.structured_content or {}).get("warnings") or ():
            await self.send("warning", str(warning))
