"""The server's own log on standard error: a line of JSON a record, plain text on a terminal; standard output is the protocol's."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from quintain.records.text import printable


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
