"""Claude Code sessions: `~/.claude/projects/<folder>/<session>.jsonl`, `claude -p --output-format stream-json`, claude.ai/code.

One reply of the API is split over lines with the same `message.id`, and its parallel results are children of different
lines of it, so a branch takes in every line of its replies and every result of their calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from quintain.importers.coding_agents.claude_forks import Origin, origin_of
from quintain.importers.coding_agents.claude_graph import Graph, Line, blocks_in, results_in
from quintain.importers.log_file import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, if_most, object_rows, only_objects
from quintain.importers.run_builder import COMPACTED, build_session_run
from quintain.importers.transcripts.message_parts import (
    join_messages,
    join_thoughts,
    plain_text,
    spoken_content,
    visible_content,
)
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank, parse_time, parse_usage
from quintain.records.trajectory import Outcome

_SIDE_RECORDS = {
    "summary",
    "file-history-snapshot",
    "queue-operation",
    "custom-title",
    "permission-mode",
    "last-prompt",
}
_LINES = "loglines"
"""Field with the lines of a session of claude.ai/code."""
_NOT_A_TASK = (
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<system-reminder>",
    "<task-notification>",
    "Caveat: The messages below were generated",
    "[Request interrupted by user",
)


def _detect(probe: Probe) -> float:
    """Match lines with a session id and a message or another known record type, or with messages alone."""
    best = 0.0
    if any("content" in as_dict(row.get("message")) for row in dicts_in(as_dict(probe.document).get(_LINES))):
        return 0.95
    for row in map(as_dict, [*probe.rows, probe.document]):
        kind, session = row.get("type"), nonblank(row.get("sessionId"), row.get("session_id"))
        if kind in ("user", "assistant") and "content" in as_dict(row.get("message")):
            if session:
                return if_most(0.95, probe, _is_line)
            best = max(best, 0.6)  # copied without the session
        if session and (as_text(kind) in _SIDE_RECORDS or (kind == "system" and "subtype" in row)):
            best = max(best, 0.5)  # programs that descend from it write such lines too
        elif kind == "summary" and "leafUuid" in row:
            best = max(best, 0.7)
    return best


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    yield from read_sessions(_lines(log, report), log, report, agent="claude-code")


def _lines(log: LogFile, report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in object_rows(log, report):
        held = row.get(_LINES)
        yield from only_objects(enumerate(held, 1), report) if isinstance(held, list) else [(number, row)]


IMPORTER = Importer("claude_code", "Claude Code session", _detect, _read)


def _is_line(row: dict[str, Any]) -> bool:
    """Whether a row names its session or its place in the graph, or is of a kind that does neither."""
    kind = as_text(row.get("type"))
    return bool({"sessionId", "session_id", "uuid", "leafUuid"} & row.keys()) or kind in _SIDE_RECORDS


def read_sessions(
    rows: Iterable[tuple[int, dict[str, Any]]], log: LogFile, report: Report, *, agent: str
) -> Iterator[Run]:
    """Yield the runs of numbered lines shaped as Claude Code writes them: one a session and one for each subagent."""
    graph = Graph(log.reading, log.path.stem)
    for number, row in rows:
        graph.add(number, row, report)
    threads = graph.threads()
    if not threads:
        report.reject(None, "expected a session, got no turn")
    branches = {thread: graph.branch(lines) for thread, lines in threads.items()}
    beside, origin = _about_subagent(log, report), _forked(graph) or origin_of(log)
    lent = {line.uuid for thread, branch in branches.items() for line in branch if line.thread != thread}
    # The others are the beginning of another session of this file, which goes on from their last turn.
    chosen = [thread for thread, branch in branches.items() if thread[1] or branch[-1].uuid not in lent]
    for thread in chosen:
        known = origin if not thread[1] and origin and origin.session != thread[0] else None
        script, line, fields = _written(branches[thread], threads, graph, report, known, agent=agent)
        if fields["parent"]:
            fields["about"] |= beside
        if thread == chosen[-1]:
            for lines in (graph.lines, threads, branches):
                lines.clear()  # as large as the run, which is built and stored from here on
        yield from build_session_run(script, report, line, **fields)


def _about_subagent(log: LogFile, report: Report) -> dict[str, str]:
    """Read the agent type from the metadata file beside a subagent's log."""
    # Written once when it starts, so the log need not be read again for its sake.
    about = LogFile(log.path, log.root).sibling_document(f"{log.path.name.removesuffix('.jsonl')}.meta.json", report)
    kind = nonblank(as_dict(about).get("agentType"))
    return {"agent_type": kind[:200]} if kind else {}


def _forked(graph: Graph) -> Origin | None:
    """Return the session that `/branch` copied these lines from, as the lines record it."""
    copied = [line for line in graph.lines.values() if line.forked_from is not None]
    session = next((nonblank(as_dict(line.forked_from).get("sessionId")) for line in copied), None)
    return Origin(session, frozenset(line.uuid for line in copied)) if session else None


def _written(
    branch: list[Line],
    threads: dict[tuple[str, str], list[Line]],
    graph: Graph,
    report: Report,
    origin: Origin | None,
    *,
    agent: str,
) -> tuple[Transcript, int, dict[str, Any]]:
    """Return the transcript of a branch, the line where it begins, and the further fields of its run."""
    session, side = branch[-1].thread
    side = side.removeprefix("?")
    involved = {line.thread for line in branch}
    turns = [line for one in involved for line in threads[one]]
    last_row = branch[-1].row
    writer = _Writer(turns, graph, report, origin.shared if origin else frozenset(), drops=len(threads) == 1)
    for line in graph.steered(branch):
        writer.write(line)
    left = [line for line in turns if line.uuid not in writer.written and line.thread == branch[-1].thread]
    if left:
        out = {line.uuid for line in left}
        n = sum((above := graph.turn_above(line)) is None or above.uuid not in out for line in left)
        report.note(f"only the branch with the latest turn is imported: {n} left out (edits, retries, rewinds)")
    end = graph.ends.get(session) if not side else None
    fields = {
        "session": f"{session}:{side}" if side else session,
        "parent": session if side else None,
        "continues": origin.session if origin else None,
        "prompt": writer.prompt or writer.command or "",
        "agent": agent,
        "version": last_row.get("version"),
        "outcome": Outcome(exit_status=end or None),
        "about": {"cwd": last_row.get("cwd"), "git_branch": last_row.get("gitBranch")},
    }
    return writer.script, branch[0].number, fields


class _Writer:
    """Writes the lines of a branch as turns, each reply and each result once."""

    def __init__(self, turns: list[Line], graph: Graph, report: Report, copied: frozenset[str], *, drops: bool) -> None:
        self.script, self.graph, self.report = Transcript(), graph, report
        self.copied = copied
        """Uuids of lines that also exist in the session this one was forked from."""
        self.drops = drops
        """Whether a line is dropped once it is written, because no other branch can need it."""
        self.written: set[str] = set()
        self.prompt: str | None = None
        self.command: str | None = None
        """Slash command (`<command-name>`), used as the prompt if no other prompt exists."""
        self._replies: dict[str, list[Line]] = {}
        self._results: dict[str, Line] = {}
        """Call id -> last line with its result."""
        self._below: dict[str, list[Line]] = {}
        for line in turns:
            if line.reply:
                self._replies.setdefault(line.reply, []).append(line)
            if line.is_meta and (above := graph.turn_above(line)):
                self._below.setdefault(above.uuid, []).append(line)
            for call_id in line.answers:
                self._results[call_id] = line
        self._answered: set[str] = set()

    def write(self, line: Line) -> None:
        if line.uuid in self.written:
            return
        self.written.add(line.uuid)
        if line.kind == "assistant":
            reply = self._replies.get(line.reply or "", [line])
            self.written.update(part.uuid for part in reply)
            lines = reply if line in reply else [line]
            self._reply(lines)
        else:
            lines = [line]
            self._user_line(line)
        if self.drops:
            for part in lines:
                part.drop()

    def _reply(self, lines: list[Line]) -> None:
        contents, thought, answers = [], [], []
        calls: dict[str, dict[str, Any]] = {}
        rows = [line.row for line in lines]
        for block in (block for row in rows for block in blocks_in(row)):
            kind = as_text(as_dict(block).get("type"))
            if kind == "thinking":
                thought.append(as_text(block.get("thinking")))
            if kind == "redacted_thinking" or (kind == "thinking" and not thought[-1]):
                self.report.note("some thoughts are encrypted and cannot be read")
            elif kind.endswith("tool_use"):
                call = make_call(block.get("name"), block.get("input"), nonblank(block.get("id")))
                calls[call["call_id"] or f"#{len(calls)}"] = call
            elif kind.endswith("tool_result"):
                answers.append(block)
            else:  # among others `fallback`: another model took over
                contents.append(spoken_content([block], self.report.skip))
        last = rows[-1]
        self.script.add_agent_turn(
            join_messages(*contents),
            thought=join_thoughts(thought),
            actions=list(calls.values()),
            model=nonblank(last["message"].get("model")),
            timestamp=parse_time(rows[0].get("timestamp")),
            usage=_usage(rows),
            copied_context=lines[-1].uuid in self.copied or None,
        )
        for answer in answers:
            self._answer(answer, last)
        for call_id in calls:
            if (line := self._results.get(call_id)) is not None:
                self.write(line)

    def _user_line(self, line: Line) -> None:
        row = line.row
        if row.get("type") == "attachment":
            self._ask(visible_content(row["attachment"].get("prompt")), row, {"queued": True})
            return
        results = results_in(row)
        for result in results:
            self._answer(result, row)
        if not isinstance(row["message"].get("content"), str | list):
            self.script.add_result(_result_beside(row))
        rest = [block for block in blocks_in(row) if not as_text(as_dict(block).get("type")).endswith("tool_result")]
        message = visible_content(rest)
        if message:
            marks = {"meta": row.get("isMeta"), "compacted": row.get("isCompactSummary")}
            self._ask(message, row, {name: True for name, mark in marks.items() if mark is True})
        for child in self._below.get(line.uuid, []) if results else []:
            self.write(child)  # what a hook or a skill added to one of several parallel results

    def _ask(self, message: Any, row: dict[str, Any], marks: dict[str, bool]) -> None:
        prompt_text = plain_text(message).strip()
        texts = [message] if isinstance(message, str) else [as_text(part.get("text")) for part in message]
        typed = "".join(text for text in texts if not text.lstrip().startswith(_NOT_A_TASK))
        if "compacted" in marks:
            self.report.note(COMPACTED)
        elif not marks and typed.strip():
            self.prompt = self.prompt or typed
        elif not marks and prompt_text.startswith(("<command-name>", "<command-message>")):
            self.command = self.command or prompt_text
        copied = nonblank(row.get("uuid")) in self.copied or None
        time = parse_time(row.get("timestamp"))
        self.script.add_message("user", message, timestamp=time, extra=marks or None, copied_context=copied)

    def _answer(self, result: dict[str, Any], row: dict[str, Any]) -> None:
        call_id = nonblank(result.get("tool_use_id"))
        if call_id in self._answered:
            return
        if call_id:
            self._answered.add(call_id)
        content = result.get("content")
        answer = visible_content(content) if content is not None else _result_beside(row)
        self.script.add_result(answer, call_id=call_id, is_error=result.get("is_error") is True)


def _result_beside(row: dict[str, Any]) -> Any:
    """Return the program's own record of a result, used if the model's view of it is missing."""
    noted = row.get("toolUseResult")
    streams = [as_text(as_dict(noted).get(name)) for name in ("stdout", "stderr")]
    return "\n".join(filter(None, streams)) if any(streams) else visible_content(noted)


def _usage(rows: list[dict[str, Any]]) -> dict[str, int | None] | None:
    """Return the usage of a reply; each line repeats it, and the last line has the full output count."""
    usages = [as_dict(row["message"].get("usage")) for row in rows]
    return parse_usage(*reversed(usages))
