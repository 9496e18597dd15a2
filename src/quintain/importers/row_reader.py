"""The reader of a format, and the shared reading of rows: iteration with rejections, and the columns that many formats have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

from pydantic import ValidationError

from quintain.errors import InvalidInput
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_of, unread_verdicts
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.run_builder import NO_RUN, build_run
from quintain.importers.transcripts.chat_messages import ACTORS, read_turns, role_of
from quintain.importers.transcripts.tool_schemas import declared_tools, offered_tools
from quintain.importers.transcripts.tool_tags import parse_tagged_calls
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import (
    SHORT_CHARS,
    as_dict,
    as_name,
    as_text,
    nonblank,
    parse_usage,
    short_fields,
    to_text,
    transpose_columns,
)
from quintain.records.trajectory import AgentInfo, Outcome, Task, Trajectory
from quintain.records.wording import clip, explain

_TASK_IDS = ("instance_id", "task_id", "problem_id", "question_id")
_ATTEMPTS = (
    "traj_id",
    "trajectory_id",
    "trial_name",
    "trial_id",
    "rollout_id",
    "run_id",
    "sample_index",
    "attempt",
    "epoch",
)
SESSIONS = ("session_id", "conversation_id", "thread_id", "topicId", "conversationId", "threadId", "sessionId")
_READ: tuple[str, ...] = ("reward", "score", "agent", "model", "model_name", "generator", "system", "system_prompt")
_READ += ("messages", "conversations", "conversation", "trajectory", "tools", "functions")
"""Columns that have a place in a run; the last six may be written as JSON texts."""
SYSTEM = ("system", "system_prompt", "systemInstruction", "system_instruction")
_THOUGHTS = ("reasoning_content", "thinking", "thought", "cot", "chain_of_thought")
_MAYBE_THOUGHTS = ("reasoning", "rationale")
"""Beside a verdict they may be the judge's."""
_WHOSE = (
    "the column {!r} stands beside a verdict or a pair of answers, so that it may be the judge's: it is not "
    f"read; if it is what the agent thought, name it {_THOUGHTS[0]!r}"
)
_MOST_FIELDS = 20
"""Fields of an object in a row whose short texts are kept."""
_UNREAD = (
    "the texts of the column {!r} are in no run; if they were asked or answered, rename the column in a copy of the file "
    "to one that this format reads"
)
_UNASKED = "some runs have no message of a user: what the agent was asked is not in their rows"
_NOT_AN_OBJECT = "expected a row that is an object, got {}"
_NAMED = 5
"""Unknown roles that a rejection names."""
ReadRow = Callable[[dict[str, Any], int, Report], Iterator[Run]]


@dataclass(frozen=True)
class Importer:
    """A reader of one format. Each module of a format defines one as `IMPORTER`, and `registry` finds it there."""

    name: str
    """Name for `format=`, e.g. `claude_code`."""
    title: str
    """Name for people, e.g. `Claude Code session`."""
    detect: Callable[[Probe], float]
    """Returns the confidence that a file has this format, 0 to 1.

    From 0.9 on, no other format can be meant: the marks are this format's alone, and most of the rows have its shape.
    Must not raise, whatever the content.
    """
    runs: Callable[[LogFile, Report], Iterator[Run]]
    """Yields the runs of a file in file order, for a report that names this format.

    Tolerant: unreadable input is passed to the report, and the rest is imported. Nothing is invented: an outcome that
    the log does not state is unknown, and a time, model or reward that it does not state is None. Raises `InvalidInput`
    where the file as a whole cannot be read as this format.
    """

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """Yield the runs of a file in file order."""
        report.format = self.name
        return self.runs(log, report)


def read_one(format: str, read: ReadRow, row: dict[str, Any]) -> Trajectory:
    """Return the run of a row that is not part of a file.

    Raises:
        InvalidInput: it has no step of an agent.
    """
    report = Report(format=format)
    run = next(iter(read(row, 1, report)), None)
    if run is None:
        raise InvalidInput(report.rejected[0][1] if report.rejected else NO_RUN)
    return run.trajectory


def matching_share(probe: Probe, fits: Callable[[dict[str, Any]], bool], *needed: str) -> float:
    """Return the share of the first rows that match, 0 to 1; a document counts as one row."""
    if probe.fields.isdisjoint(needed):
        return 0.0
    rows = [probe.document] if probe.document is not None else list(probe.rows[:20])
    if probe.shape not in {"object", "array", "lines"} or not rows:
        return 0.0
    return sum(1 for row in rows if isinstance(row, dict) and fits(row)) / len(rows)


def if_most(confidence: float, probe: Probe, fits: Callable[[dict[str, Any]], bool]) -> float:
    """Return the confidence of a match if at least half of the first rows fit, else at most 0.6.

    Programs also write lines in the shapes of other programs, so one such line does not identify a format.
    """
    rows = [row for row in (*probe.rows, probe.document) if isinstance(row, dict)]
    return confidence if 2 * sum(map(fits, rows)) >= len(rows) else min(confidence, 0.6)


def is_sentence(value: Any) -> bool:
    """Whether a text is long enough for a question or an answer, rather than the label of a button or column."""
    if not isinstance(value, str):
        return False
    return len(value.split()) > 1 or len(value) >= 20 or (len(value) > 3 and not value.isascii()) or value.endswith("?")


def object_rows(log: LogFile, report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file that are objects with their numbers, and reject the others."""
    yield from only_objects(log.rows(report), report)


def only_objects(rows: Iterable[tuple[int, Any]], report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the numbered rows that are objects, and reject the others."""
    for line, row in rows:
        if isinstance(row, dict):
            yield line, row
        else:
            report.reject(line, _NOT_AN_OBJECT.format(type(row).__name__))


def runs_or_parts(log: LogFile, report: Report, is_part: Callable[[Any], bool]) -> Iterator[tuple[int, Any]]:
    """Yield the numbered rows of a file; those that are parts of one run come at the end, as one list."""
    parts: list[Any] = []
    begins = 0
    for line, row in log.rows(report):
        if is_part(row):
            parts.append(row)
            begins = begins or line
        else:
            yield line, row
    if parts:
        yield begins, parts


def read_rows(log: LogFile, report: Report, read: ReadRow) -> Iterator[Run]:
    """Yield the runs of every row."""
    for line, row in log.rows(report):
        yield from read_row(row, line, report, read)


def row_importer(name: str, title: str, detect: Callable[[Probe], float], read: ReadRow) -> Importer:
    """Return the importer of a format whose rows are read one by one (`read_rows`)."""
    return Importer(name, title, detect, partial(read_rows, read=read))


def read_row(row: Any, line: int, report: Report, read: ReadRow) -> list[Run]:
    """Return the runs of one row; if it cannot be read, reject it."""
    if not isinstance(row, dict):
        report.reject(line, _NOT_AN_OBJECT.format(type(row).__name__))
        return []
    try:
        return list(read(row, line, report))
    except InvalidInput as error:
        report.reject(line, error.message)
    except ValidationError as error:
        report.reject(line, explain(error, "row"))
    return []


def build_chat_run(
    messages: Iterable[Any], row: Mapping[str, Any], line: int, report: Report, **fields: Any
) -> Iterator[Run]:
    """Build one run from chat messages and the other columns of their row.

    Args:
        messages: As `read_turns` takes them.
        row: Its columns; small unused ones are kept in `extra`.
        line: Number of the row.
        report: Counts skipped content.
        **fields: Fields of `Trajectory` that override the columns; `extra` is merged.

    Raises:
        InvalidInput: messages have contents and unknown roles, so that the context would have holes.
    """
    transcript = Transcript()
    following = iter(messages)
    opening = list(islice(following, 1))
    system = next((row[key] for key in SYSTEM if row.get(key)), None)
    system = as_dict(system).get("parts") or system  # Gemini's API
    if system and not any(isinstance(m, Mapping) and m.get("role") == "system" for m in opening):
        opening.insert(0, {"role": "system", "content": system})
    spoken = _require_roles(parse_tagged_calls(chain(opening, following)))
    read_turns(_with_pictures(spoken, row, report), transcript, report.refuse)
    if not transcript.steps.is_spooled:
        _complete(transcript, row, report)
        _think(transcript, row, "outcome" in fields or outcome_of(row) != Outcome(), report)
        for column in _unread_texts(row, transcript):
            report.note(_UNREAD.format(column))
    for column, value in unread_verdicts(row).items():
        report.unread(column, value)
    extra = {**({"row": left} if (left := _left_over(row)) else {}), **fields.pop("extra", {})}
    known: dict[str, Any] = {
        "task": task_of(row),
        "agent": agent_of(row, transcript.model),
        "outcome": outcome_of(row),
        "tools": offered_tools(row) or declared_tools(transcript),
        "session_id": first_name(row, SESSIONS),
        "episode_key": first_name(row, _ATTEMPTS),
        "extra": extra,
    }
    yield from build_run(transcript, report, line, **known | fields)


def _complete(transcript: Transcript, row: Mapping[str, Any], report: Report) -> None:
    """Add the token counts of a row to its only turn of the agent; note a run in which nobody asked."""
    acted = [step for step in transcript.steps if step["actor"] == "agent"]
    if len(acted) == 1 and not acted[0].get("usage"):  # of several, nobody knows which one took the tokens
        responses = (value for value in row.values() if isinstance(value, Mapping))
        columns = {name: count for name, count in row.items() if "token" in name.lower()}
        if usage := parse_usage(row.get("usage"), *(response.get("usage") for response in responses), columns):
            acted[0]["usage"] = usage
    if acted and not any(step["actor"] == "user" for step in transcript.steps):
        report.note(_UNASKED)


def _think(transcript: Transcript, row: Mapping[str, Any], is_judged: bool, report: Report) -> None:
    """Add the thought that a column of a row states to the only turn of its agent."""
    acted = [step for step in transcript.steps if step["actor"] == "agent"]
    names = [name for name in (*_THOUGHTS, *_MAYBE_THOUGHTS) if is_sentence(row.get(name))]
    if len(acted) != 1 or acted[0].get("thought") or not names or row[names[0]].strip() in acted[0]["message"]:
        return
    if names[0] in _MAYBE_THOUGHTS and is_judged:
        report.note(_WHOSE.format(names[0]))
    else:
        acted[0]["thought"] = row[names[0]].strip()


def _unread_texts(row: Mapping[str, Any], transcript: Transcript) -> list[str]:
    """Return the columns beside a single answer with long texts, JSON aside, that are neither in a turn nor in `extra`."""
    if sum(step["actor"] == "agent" for step in transcript.steps) != 1:
        return []
    known = {*_READ, *SYSTEM, *_MAYBE_THOUGHTS}
    long = {name: text for name, text in row.items() if len(as_text(text).strip()) > SHORT_CHARS and name not in known}
    read_text = "\n".join(
        to_text(step[key]) for step in transcript.steps for key in ("message", "thought") if step.get(key)
    )
    return [name for name, text in long.items() if text.strip()[0] not in "[{<" and text.strip() not in read_text]


def _require_roles(messages: Iterable[Any]) -> Iterator[Any]:
    lost: Counter[str] = Counter()
    n = 0
    for message in messages:
        yield message
        n += 1
        if isinstance(message, Mapping) and message.get("content") and role_of(message) is None:
            lost[clip(str(message.get("role")), 40)] += 1
    if lost:
        names = ", ".join(name for name, _ in lost.most_common(_NAMED))
        raise InvalidInput(
            f"expected messages with the roles {', '.join(ACTORS)}, got {lost.total()} of {n} with others ({names}"
            f"{', ...' if len(lost) > _NAMED else ''}); without them the context would have holes: in a copy of the log, "
            "rename the agent to train to assistant and the others to user"
        )


def task_of(row: Mapping[str, Any]) -> Task:
    """Return the task named by the columns; its prompt comes from the messages."""
    return Task(id=first_name(row, _TASK_IDS))


def agent_of(row: Mapping[str, Any], acted: str | None = None) -> AgentInfo:
    """Return the agent named by the columns; `acted` is the model of its turns, where no column names one."""
    model = row.get("model")
    about = {
        key: value for name in ("runSettings", "meta", "metadata") for key, value in as_dict(row.get(name)).items()
    }
    named = model.get("name") if isinstance(model, Mapping) else None
    generator = row.get("generator")  # of AlpacaEval's outputs
    stated = (row.get("model_name"), row.get("modelId"), named, about.get("model"), about.get("model_name"))
    model = nonblank(model, *stated, acted, generator)
    return AgentInfo(name=nonblank(row.get("agent"), generator) or "unknown", model=model)


def first_name(row: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the first of these columns that has a name or a number."""
    for key in keys:
        if key in row and (known := as_name(row[key])) is not None:
            return known[:500]
    return None


def _left_over(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return short scalar columns that no field of a run stores, those in `metadata` and other objects by dotted names.

    Tables beside a log name its runs by them.
    """
    used = {*_TASK_IDS, *_ATTEMPTS, *SESSIONS, *_READ}
    inner = {
        f"{key}.{name}": value
        for key, fields in row.items()
        if isinstance(fields, dict) and len(fields) <= _MOST_FIELDS and key not in used
        for name, value in fields.items()
        if isinstance(value, str)
    }
    plain = {key: value for key, value in row.items() if isinstance(value, str | int | float)}
    return short_fields(plain | inner, SHORT_CHARS, without=used)


_COLUMNS = ("images", "image", "image_paths", "image_urls")
_MARK = "<image>"
_BYTES = "images stored as bytes are left out; only images given by path or URL are kept"
_PLAYED = ("videos", "video", "audios", "audio")
_UNPLAYED = "videos and sounds are left out: what the agent was asked about them is in its run, they are not"


def _with_pictures(messages: Iterable[Any], row: Mapping[str, Any], report: Report) -> Iterable[Any]:
    """Return the messages with the images of their row's column where they mark them (`<image>` or an empty image part).

    Images without a mark go before the first user message.
    """
    if any(map(row.get, _PLAYED)):
        report.note(_UNPLAYED)
    pictures = _pictures(row, report)
    if not pictures:
        return messages
    marked = [_marked(message, pictures) for message in messages]
    asked = next((n for n, message in enumerate(marked) if as_dict(message).get("role") == "user"), None)
    if pictures and asked is not None:
        content = marked[asked].get("content")
        rest = content if isinstance(content, list) else [{"type": "text", "text": as_text(content)}]
        marked[asked] = {**marked[asked], "content": [*pictures, *rest]}
    return marked


def _pictures(row: Mapping[str, Any], report: Report) -> list[dict[str, Any]]:
    pictures = next((transpose_columns(row[key]) for key in _COLUMNS if row.get(key)), None)
    found = []
    for picture in pictures if isinstance(pictures, list) else [pictures]:
        named = (picture, *(as_dict(picture).get(key) for key in ("path", "url", "uri")))
        place = next((each for each in named if isinstance(each, str) and each), None)
        if place is not None:
            found.append({"type": "image_url", "image_url": {"url": place}})
        elif picture:
            report.note(_BYTES)
    return found


def _marked(message: Any, pictures: list[dict[str, Any]]) -> Any:
    """Replace the image marks of a message and remove the images used from the list."""
    content = as_dict(message).get("content")
    if isinstance(content, list):
        empty = [set(as_dict(part)) == {"type"} and as_dict(part)["type"] in ("image", "image_url") for part in content]
        filled = [pictures.pop(0) if hole and pictures else part for part, hole in zip(content, empty, strict=True)]
        return {**message, "content": filled} if any(empty) else message
    if not isinstance(content, str) or _MARK not in content or not pictures:
        return message
    parts: list[Any] = []
    before, *rest = content.split(_MARK)
    for piece in rest:
        leading_text, before = before, piece
        parts += [{"type": "text", "text": leading_text}] if leading_text else []
        parts.append(pictures.pop(0) if pictures else {"type": "text", "text": _MARK})
    return {**message, "content": [*parts, *([{"type": "text", "text": before}] if before else [])]}
