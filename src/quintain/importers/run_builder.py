"""Build runs from turns: the last step of every reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Report, Run
from quintain.importers.transcripts.chat_messages import Turn, append_turn
from quintain.importers.transcripts.tool_schemas import INFERRED, inferred_tools
from quintain.importers.transcripts.transcript import Transcript

NO_RUN = "expected a run, got a task without an agent turn"
NO_SYSTEM_PROMPT = "the log has no system prompt: the model's input before the first message is unknown"
COMPACTED = "the context was compacted: after the summary the model no longer saw the earlier turns"
_ORPHANS = "results without a call in the log are attached to the preceding turn"


def build_run(
    turns: Sequence[Turn] | Transcript,
    report: Report,
    line: int | None,
    *,
    key: str | None = None,
    parent: str | None = None,
    continues: str | None = None,
    **fields: Any,
) -> Iterator[Run]:
    """Build the run of some turns; reject it if no agent turn exists or a field is invalid.

    Args:
        turns: In order.
        report: Names the format; gets rejections, and notes on results without a call and on inferred tools.
        line: Where the run begins.
        key: Name of the run among those of its format, as `parent` and `continues`; see `Run`.
        parent: See `key`.
        continues: See `key`.
        **fields: As `Transcript.pieces` takes them. Without `tools` they are inferred from the calls.
    """
    transcript = _transcript_of(turns)
    if not transcript.has_acted:
        report.reject(line, NO_RUN)
        return
    if not fields.get("tools") and (tools := inferred_tools(transcript)):
        report.note(INFERRED)
        fields |= {"tools": tools, "extra": {**(fields.get("extra") or {}), "tools": "inferred"}}
    if transcript.orphans:
        report.note(_ORPHANS)
    is_spooled, pieces = transcript.steps.is_spooled, transcript.pieces(format=report.format, **fields)
    try:
        run = next(pieces)
    except InvalidInput as error:
        report.reject(line, error.message)
        return
    key, parent, continues = (name and f"{report.format}:{name}" for name in (key, parent, continues))
    yield Run(run, line, key, parent, continues, pieces if is_spooled else ())


def _transcript_of(turns: Sequence[Turn] | Transcript) -> Transcript:
    if isinstance(turns, Transcript):
        return turns
    transcript = Transcript()
    for turn in turns:
        append_turn(turn, transcript)
    return transcript


def build_session_run(
    turns: Sequence[Turn] | Transcript, report: Report, line: int | None, *, session: str | None = None, **fields: Any
) -> Iterator[Run]:
    """Build the run of an agent session, whose log often lacks the program's own messages to the model.

    Args:
        turns: In order.
        report: As for `build_run`; also gets a note on a missing system prompt.
        line: Where the run begins.
        session: Id of the session, by which other sessions refer to this one.
        **fields: As `build_run` takes them.
    """
    transcript = _transcript_of(turns)
    if transcript.has_acted and not transcript.has_system:
        report.note(NO_SYSTEM_PROMPT)
    names = {"key": session, "session_id": session} if session else {}
    yield from build_run(transcript, report, line, **names, **fields)
