"""Memory of an import of a long session: older turns wait in a temporary file, and the parts are built one by one."""

from __future__ import annotations

import hashlib
import json
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import InvalidInput, Unavailable
from quintain.importers import log_file, run_splitting
from quintain.importers.coding_agents import claude_graph
from quintain.importers.files import byte_streams, raw_values
from quintain.importers.files.json_parser import Parser
from quintain.importers.files.raw_values import LongValue
from quintain.importers.files.spooled_list import SpooledList
from quintain.importers.log_file import parse_long_row
from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.run_sink import RunSink
from quintain.importers.run_splitting import PART_CHARS
from quintain.importers.training_data import loose_messages
from quintain.importers.transcripts import transcript
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.records.imports import IngestStatus, RunLink
from quintain.records.trajectory import Trajectory
from small_logs import SMALL_LOGS

RESULTS, CHARS = 200, 30_000


def result_text(n: int) -> str:
    """One in fifty has a key, which is redacted."""
    return f"{n} {'API_KEY=q1w2e3r4t5y6u7i8 ' if n % 50 == 7 else ''}".ljust(CHARS, "x")


def claude_session() -> list[dict[str, Any]]:
    """Each result stands twice in a line: as the model saw it, and in the program's own record."""
    lines = [claude(0, "user", "Go")]
    for n in range(1, 2 * RESULTS, 2):
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": "x"}}
        text = result_text(n // 2)
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": text}
        lines += [
            claude(n, "assistant", [call]),
            {**claude(n + 1, "user", [result]), "toolUseResult": {"stdout": text}},
        ]
    return lines


def claude(n: int, role: str, content: Any) -> dict[str, Any]:
    place = {"uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, "sessionId": "s"}
    return {"type": role, **place, "message": {"role": role, "content": content}}


def codex_session() -> list[dict[str, Any]]:
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]}
    items = [asked]
    for n in range(RESULTS):
        items += [
            {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": f"c{n}"},
            {"type": "function_call_output", "call_id": f"c{n}", "output": result_text(n)},
        ]
    return [
        {"type": "session_meta", "payload": {"id": "s"}},
        *({"type": "response_item", "payload": item} for item in items),
    ]


def chat() -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go"}]
    for n in range(RESULTS):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": f"Step {n}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": result_text(n)},
        ]
    return messages


def chat_in_one_line() -> list[dict[str, Any]]:
    return [{"id": 7, "messages": chat(), "tools": [], "model": "m"}]


def pi_session() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s", "cwd": "/w"}]
    for n, message in enumerate(chat()[1:]):
        said = {**message, "toolCallId": message.get("tool_call_id"), "toolCalls": message.get("tool_calls")}
        said["role"] = {"tool": "toolResult"}.get(message["role"], message["role"])
        kept = {key: value for key, value in said.items() if value is not None and "tool_call" not in key}
        lines.append({"type": "message", "id": f"m{n}", "parentId": f"m{n - 1}" if n else None, "message": kept})
    return lines


def kimi_session() -> list[dict[str, Any]]:
    return [{"role": "_system_prompt", "content": "Be brief."}, {"role": "_checkpoint", "id": 0}, *chat()[1:]]


SESSIONS = pytest.mark.parametrize(
    "lines", [claude_session, codex_session, chat, chat_in_one_line, pi_session, kimi_session]
)


def written(path: Path, lines: Callable[[], list[dict[str, Any]]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines()))
    return path


class Runs(RunSink):
    """Keeps a digest of each run, its redactions, and the links, but not the runs."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.digests: list[str] = []
        self.redactions: Counter[str] = Counter()
        self.links: list[RunLink] = []

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        self.batches.append(len(runs))
        for run in runs:
            self.digests.append(hashlib.sha256(run.model_dump_json().encode()).hexdigest())
            self.redactions.update(run.redactions)
        return ["new" for _ in runs]

    def link(self, links: Sequence[RunLink]) -> None:
        self.links += links


def spool_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 60 kB be what 1 MB of a log and a million characters of a run are."""
    for module in (claude_graph, loose_messages, raw_values, log_file):
        monkeypatch.setattr(module, "MEMORY_BYTES", CHARS * 2)
    monkeypatch.setattr(transcript, "MEMORY_CHARS", CHARS * 2)
    monkeypatch.setattr(transcript, "PIECE_BYTES", CHARS)
    monkeypatch.setattr(byte_streams, "CHUNK_BYTES", CHARS)


@SESSIONS
def test_a_long_session_is_not_in_memory_whole_and_its_parts_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    path = written(tmp_path / "session.jsonl", lines)
    monkeypatch.setattr(run_splitting, "PART_CHARS", CHARS * 10)
    whole, parts = Runs(), Runs()
    report = import_logs(path, ImportOptions(), whole)
    assert report.redactions == whole.redactions == {"api_key": RESULTS // 50}
    assert len(whole.digests) > RESULTS // 10
    spool_early(monkeypatch)
    tracemalloc.start()
    try:
        assert import_logs(path, ImportOptions(), parts) == report
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (parts.digests, parts.redactions, parts.links) == (whole.digests, whole.redactions, whole.links)
    text = RESULTS * CHARS
    assert peak < 0.6 * text, f"{peak / text:.2f} times the text"


def test_a_transcript_corrects_and_cuts_steps_that_are_in_the_file() -> None:
    script = Transcript(memory_chars=10)
    for n in range(6):
        script.add_message("user", f"question {n}, which is long")
        script.add_agent_turn(f"answer {n}", actions=[make_call(f"tool{n}", {"x": n}, f"c{n}")], model="m")
        if n != 1:
            script.add_result("a result that is long", call_id=f"c{n}")
    assert script.steps.is_spooled
    script.add_result("a late result", call_id="c1")
    script.steps[3]["message"] += ", corrected"
    script.cut(10)
    assert [step["message"] for step in script.steps][3::2] == [
        "answer 1, corrected",
        "answer 2",
        "answer 3",
        "answer 4",
    ]
    assert list(script.called) == [f"tool{n}" for n in range(5)]
    whole = script.trajectory(format="f")
    pieces = list(script.pieces(format="f"))
    assert len(pieces) > 1
    assert tuple(step for piece in pieces for step in piece.steps) == whole.steps
    assert [step.observations[0].content for step in whole.agent_steps][:2] == [
        "a result that is long",
        "a late result",
    ]


def test_a_session_that_cannot_be_spooled_ends_the_import_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool_early(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(Unavailable, match=r"temporary file, got No such file.*; .*TMPDIR"):
        import_logs(written(tmp_path / "session.jsonl", chat), ImportOptions(), Runs())


def test_the_parts_of_a_long_run_are_stored_one_by_one(tmp_path: Path) -> None:
    long = "x" * (PART_CHARS // 5)
    messages = [{"role": role, "content": long + "." * n} for n in range(5) for role in ("user", "assistant")]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": messages}))
    sink = Runs()
    assert import_logs(path, ImportOptions(redact=()), sink).imported == len(sink.batches)
    assert set(sink.batches) == {1}
    assert len(sink.batches) > 1


ODD_ROWS = (
    r'{"messages": [], "a": {"messages" : [ {"x": "]}\"[,"} , {"messages": [{}]} ]}, "b": [[{"messages": [{"y": 1}]}]]}',
    r'{"messages": [{"role": "user"}], "messages": [{"role": "\u00e9"}], "text": "\"messages\": [1]", "n": [1, 2.5, null]}',
    r'{"messages": [{"a": NaN}, {"b": "\ud800 \u0000"}], "é": "\\"}',
    '{"messages": [{"a": 1}, 2]}',
    '{"messages": [{"a": 1},]}',
    '{"messages": [{"a": 1}',
    '{"messages": [{"a": 1}}',
    '{"messages": [{"a": 1] , {"b": 2}]}',
    '{"messages": [{"a": 1}]} {"messages": []}',
    '{"messages": [{"a": %s}]}' % ("[" * 99 + "]" * 99),
    '{"messages": [{"a": %s}]}' % ("[" * 97 + "]" * 97),
    "[" * 200,
)
"""Rows with escapes, nested lists, repeated names, repairs, values other than objects, and what is not JSON."""


@pytest.mark.parametrize("n_bytes", [1, 7, 1000])
def test_a_long_row_has_the_value_and_the_error_of_the_row_parsed_whole(
    monkeypatch: pytest.MonkeyPatch, n_bytes: int
) -> None:
    monkeypatch.setattr(raw_values, "CHUNK_BYTES", n_bytes)
    monkeypatch.setattr(log_file, "MEMORY_BYTES", 20)
    small = (json.dumps(row) for _, rows in SMALL_LOGS.values() for row in (rows if isinstance(rows, list) else [rows]))
    n_split = 0
    for text in (*ODD_ROWS, *small):
        expected = outcome(lambda text=text: Parser(Counter()).parse(text.encode()))
        for names in (None, ("messages", "steps")):
            row = LongValue()
            row.add(text.encode())
            got = outcome(lambda row=row, names=names: parse_long_row(row, Parser(Counter()), names))
            n_split += got != (got := in_memory(got))
            assert got == expected, text
    assert n_split > 30


def outcome(parse: Callable[[], Any]) -> Any:
    try:
        return parse()
    except InvalidInput as error:
        return error.code, error.message


def in_memory(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_memory(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, SpooledList) else value
