"""SillyTavern chats: `chats/<character>/<chat>.jsonl`, a line about the chat and then a message a line.

The shown one of several answers (`swipes`) is the turn. What the character says before the user spoke is written on its
card, and not in the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.values import as_dict, as_list, as_text, nonblank, parse_json_text, parse_time

_SWIPES = "of several answers (swipes) the one that was shown is imported: the others are left out"


def _detect(probe: Probe) -> float:
    """Match lines of a message and whether the user wrote it."""
    share = matching_share(probe, lambda row: "mes" in row and isinstance(row.get("is_user"), bool), "mes")
    return 0.97 if share >= 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    about: dict[str, Any] = {}
    yield from build_session_run(_messages(log, report, about), report, agent=None, about=about)


IMPORTER = Importer("sillytavern", "SillyTavern chats", _detect, _read)


def _messages(log: LogFile, report: Report, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages; what the first line says of the chat goes to `about`."""
    asked = False
    for _, row in object_rows(log, report):
        extra, text = as_dict(row.get("extra")), as_text(row.get("mes"))
        if "mes" not in row:
            about["character"] = nonblank(row.get("character_name"))
        elif calls := [as_dict(call) for call in as_list(extra.get("tool_invocations"))]:
            yield {"role": "assistant", "tool_calls": list(map(_call, calls))}
            yield from (
                {"role": "tool", "tool_call_id": call.get("id"), "content": call.get("result")} for call in calls
            )
        elif row.get("is_system") is True:
            report.skip("message hidden from the model")
        elif row.get("is_user") is True:
            asked = True
            yield {"role": "user", "content": text, "timestamp": parse_time(row.get("send_date"))}
        else:
            if len(as_list(row.get("swipes"))) > 1:
                report.note(_SWIPES)
            yield {
                "role": "assistant",
                "content": text,
                "reasoning": nonblank(extra.get("reasoning")),
                "model": nonblank(extra.get("model")),
                "timestamp": parse_time(row.get("send_date")),
                **({} if asked else {"train": False}),
            }


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call.get("name"), "arguments": parse_json_text(call.get("parameters"))}
    return {"id": call.get("id"), "function": function}
