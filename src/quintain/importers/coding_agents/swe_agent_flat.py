"""SWE-agent trajectories as dataset rows: turns of `role` system, user or ai with their `text` (e.g. nebius)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.outcome_fields import outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import if_most, row_importer
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.message_parts import visible_content
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_text, dicts_in, nonblank
from quintain.records.trajectory import Task

_ACTORS = {"system": "system", "user": "user", "ai": "agent", "assistant": "agent"}


def _detect(probe: Probe) -> float:
    """Match rows whose trajectory consists of turns with a text."""
    best = 0.0
    if "trajectory" not in probe.fields:
        return best
    for row in map(as_dict, [*probe.rows, probe.document]):
        turns = dicts_in(row.get("trajectory"))
        if any(as_text(turn.get("role")) in _ACTORS and "text" in turn for turn in turns):
            is_known = any(turn.get("role") == "ai" or {"mask", "system_prompt"} & set(turn) for turn in turns)
            best = max(best, 0.95 if is_known else 0.7)
    return if_most(best, probe, lambda row: "trajectory" in row)


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    script = Transcript()
    for turn in dicts_in(row.get("trajectory")):
        role = turn.get("role")
        actor = _ACTORS.get(role) if isinstance(role, str) else None
        # The system's text has a separate column.
        text = nonblank(turn.get("system_prompt"), turn.get("text")) if actor == "system" else turn.get("text")
        content = visible_content(text)
        if actor == "agent":
            script.add_agent_turn(content, train=False if turn.get("mask") is False else None)
        elif actor is not None:
            script.add_message(actor, content)
        else:
            report.skip(f"turn of role {role}" if isinstance(role, str) else "turn without role")
    verdicts = (row.get(name) for name in ("target", "resolved", "verified"))
    resolved = next((one for one in verdicts if isinstance(one, bool)), None)
    yield from build_session_run(
        script,
        report,
        line,
        task=Task(id=nonblank(row.get("instance_id"))),
        agent="swe-agent",
        model=nonblank(row.get("model_name"), row.get("model")),
        outcome=outcome_from(resolved, nonblank(row.get("exit_status"))),
    )


IMPORTER = row_importer("swe_agent_flat", "SWE-agent rows", _detect, _row)
