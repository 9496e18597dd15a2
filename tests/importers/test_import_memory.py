"""What an import holds of a long session: its text once, and not the program's own records of the same results."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quintain.importers.pipeline import ImportOptions, import_logs
from quintain.importers.run_sink import DryRun, RunSink
from quintain.importers.run_splitting import PART_CHARS
from quintain.records.imports import IngestStatus
from quintain.records.trajectory import Trajectory

RESULTS, CHARS = 200, 8_000


def claude_session() -> list[dict[str, Any]]:
    """Each result stands twice in a line: as the model saw it, and in the program's own record."""
    lines = [claude(0, "user", "Go")]
    for n in range(1, 2 * RESULTS, 2):
        call = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": "x"}}
        text = f"{n} ".ljust(CHARS, "x")
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
            {"type": "function_call_output", "call_id": f"c{n}", "output": f"{n} ".ljust(CHARS, "x")},
        ]
    return [
        {"type": "session_meta", "payload": {"id": "s"}},
        *({"type": "response_item", "payload": item} for item in items),
    ]


@pytest.mark.parametrize("lines", [claude_session(), codex_session()], ids=["claude_code", "codex"])
def test_a_long_session_is_held_once(tmp_path: Path, lines: list[dict[str, Any]]) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    import_logs(path, ImportOptions(), DryRun({}))  # loads what an import needs once
    tracemalloc.start()
    try:
        report = import_logs(path, ImportOptions(), DryRun({}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report.imported == 1
    text = RESULTS * CHARS
    # The text and the objects around it, and about 1 MB each for the chunk, a group of texts and their lowered blocks.
    assert peak < 1.5 * text + 5 * 2**20, f"{peak / text:.2f} times the text"


class Sizes(RunSink):
    """Keeps how many runs came in each batch."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def add(self, runs: Sequence[Trajectory]) -> list[IngestStatus]:
        self.batches.append(len(runs))
        return ["new" for _ in runs]


def test_the_parts_of_a_long_run_are_stored_one_by_one(tmp_path: Path) -> None:
    long = "x" * (PART_CHARS // 5)
    messages = [{"role": role, "content": long + "." * n} for n in range(5) for role in ("user", "assistant")]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": messages}))
    sink = Sizes()
    assert import_logs(path, ImportOptions(redact=False), sink).imported == len(sink.batches)
    assert set(sink.batches) == {1}
    assert len(sink.batches) > 1
