"""Build runs from turns: the last step of every reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from quintain.errors import InvalidInput
from quintain.importers.protocol import Report, Run
from quintain.importers.transcripts.chat_messages import Turn, append_turn, read_turns
from quintain.importers.transcripts.tool_schemas import INFERRED, inferred_tools
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import nonblank, text_fields
from quintain.records.trajectory import AgentInfo

NO_RUN = "expected a run, got a task without an agent turn"
NO_SYSTEM_PROMPT = "the log has no system prompt: the model's input before the first message is unknown"
COMPACTED = "the context was compacted: after the summary the model no longer saw the earlier turns"
_ORPHANS = "results without a call in the log are attached to the preceding turn"


def build_run(
    turns: Iterable[Turn | Mapping[str, Any]] | Transcript,
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
        turns: In order; messages of a chat API become turns first.
        report: Names the format; gets rejections, and notes on results without a call and on inferred tools.
        line: Where the run begins.
        key: Name of the run among those of its format, as `parent` and `continues`; see `Run`.
        parent: See `key`.
        continues: See `key`.
        **fields: As `Transcript.pieces` takes them. Without `tools` they are inferred from the calls.
    """
    transcript = transcript_of(turns, report)
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


def transcript_of(turns: Iterable[Turn | Mapping[str, Any]] | Transcript, report: Report) -> Transcript:
    """Return turns or messages of a chat API as a transcript, which holds a long session in bounded memory."""
    if isinstance(turns, Transcript):
        return turns
    transcript = Transcript()
    for turn in turns:
        if isinstance(turn, Turn):
            append_turn(turn, transcript)
        else:
            read_turns([turn], transcript, report.refuse)
    return transcript


def build_session_run(
    turns: Iterable[Turn | Mapping[str, Any]] | Transcript,
    report: Report,
    line: int | None = None,
    *,
    agent: Any,
    version: Any = None,
    model: Any = None,
    session: Any = None,
    about: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> Iterator[Run]:
    """Build the run of an agent session, whose log often lacks the program's own messages to the model.

    Args:
        turns: As `build_run` takes them.
        report: As for `build_run`; also gets a note on a missing system prompt.
        line: Where the run begins; None: it is the file.
        agent: Name of the program.
        version: Of the program; as other values of the log, it counts where it is text.
        model: None: that of the first turn that names one.
        session: Id of the session, by which other sessions refer to this one.
        about: Values of the log for `extra`.
        **fields: As `build_run` takes them.
    """
    transcript, session = transcript_of(turns, report), nonblank(session)
    if transcript.has_acted and not transcript.has_system:
        report.note(NO_SYSTEM_PROMPT)
    names = {"key": session, "session_id": session} if session else {}
    info = AgentInfo(
        name=(nonblank(agent) or "unknown")[:200], version=nonblank(version), model=nonblank(model, transcript.model)
    )
    extra = text_fields(about) | (fields.pop("extra", None) or {})
    yield from build_run(transcript, report, line, agent=info, extra=extra, **names, **fields)
