"""SWE-agent trajectories (`<instance>.traj`), of function-calling and of text protocols.

`history` holds the messages as the model saw and wrote them; without it the steps of `trajectory` are read. Where the agent
acted by text, its text stays text and the answer a turn of the user: that is the protocol that it was taught.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quintain.importers.harnesses.swe_bench import verdict_of
from quintain.importers.harnesses.verdicts import outcome_by
from quintain.importers.logfile import LogFile
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.runs import session_run
from quintain.importers.training_data.rows import objects
from quintain.importers.transcripts.chat import put, turn_of
from quintain.importers.transcripts.parts import plain, shown
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.transcripts.values import decoded, first, items, label, record, records
from quintain.records.trajectory import AgentInfo, Task

MAX_PATCH = 100_000
"""Characters of a patch that was submitted; a longer one is not kept."""

_READ = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content", "thinking_blocks")
_ELIDED = re.compile(r"^Old (environment output|observation|output): \(", re.IGNORECASE)


@dataclass(frozen=True)
class SweAgent:
    """Reads SWE-agent trajectories."""

    name: str = "swe_agent"
    title: str = "SWE-agent trajectory"

    def detect(self, probe: Probe) -> float:
        """An object with the history or the steps of SWE-agent."""
        whole = probe.first
        history, steps = records(whole.get("history")), records(whole.get("trajectory"))
        if history and any(
            "role" in message and ("message_type" in message or "agent" in message) for message in history
        ):
            return 0.96
        if steps and any("response" in step and "observation" in step for step in steps):
            return 0.95
        if probe.name.endswith(".traj") and history and all("role" in message for message in history):
            return 0.9
        return 0.0

    def read(self, log: LogFile, report: Report) -> Iterator[Run]:
        """One run a file; one an attempt where the agent tried several times."""
        for line, row in objects(log, report):
            # An agent that tries again keeps its attempts, and once more the one that it submitted beside them.
            attempts = records(row.get("attempts"))
            best = record(row.get("info")).get("best_attempt_idx")
            for n, attempt in enumerate(attempts):
                yield from _run(line, {**row, **attempt}, log, report, attempt=n, is_judged=n == best)
            if not attempts:
                yield from _run(line, row, log, report)


def _run(
    line: int, row: dict[str, Any], log: LogFile, report: Report, *, attempt: int | None = None, is_judged: bool = True
) -> Iterator[Run]:
    script = Transcript()
    if records(row.get("history")):
        _write_history(records(row["history"]), script, report)
    else:
        _write_steps(records(row.get("trajectory")), script, report)
    info, settings = record(row.get("info")), _settings(row.get("replay_config"))
    problem = record(settings.get("problem_statement"))
    is_traj = log.path.name.endswith(".traj")
    instance = first(
        problem.get("id"), row.get("instance_id"), log.path.name.removesuffix(".traj") if is_traj else None
    )
    resolved = verdict_of(log, [row.get("report"), info], instance) if is_judged else None
    cost = record(info.get("model_stats")).get("instance_cost")
    yield from session_run(
        script,
        report,
        line,
        format="swe_agent",
        prompt=first(problem.get("text"), problem.get("problem_statement")),
        task=Task(id=instance, environment=label(row.get("environment"))),
        agent=AgentInfo(
            name="swe-agent",
            version=label(info.get("swe_agent_version")),
            model=first(record(record(settings.get("agent")).get("model")).get("name")),
        ),
        outcome=outcome_by(resolved, label(info.get("exit_status"))),
        episode_key="" if attempt is None else f"attempt-{attempt}",
        extra=({"cost": cost} if isinstance(cost, int | float) and cost else {}) | submission_of(info, report),
    )


def submission_of(info: dict[str, Any], report: Report) -> dict[str, str]:
    """The patch that the agent handed in, for a run's `extra`."""
    submission = label(info.get("submission"))
    if submission and len(submission) > MAX_PATCH:
        report.note(f"patches of more than {MAX_PATCH:,} characters are not kept")
    return {"submission": submission} if submission and len(submission) <= MAX_PATCH else {}


def _settings(value: Any) -> dict[str, Any]:
    """The configuration of the run, which is an object or its JSON."""
    return record(decoded(value))


def _write_history(history: list[dict[str, Any]], script: Transcript, report: Report) -> None:
    for message in history:
        if message.get("is_demo") is True or message.get("message_type") == "demonstration":
            report.skip("demonstration")
            continue
        ids = items(message.get("tool_call_ids"))
        known = {key: message[key] for key in _READ if message.get(key) is not None}
        if known.get("role") == "tool" and ids:
            known.setdefault("tool_call_id", ids[0])
        turn = turn_of(known, "message", report.refuse)
        if turn is None:
            continue
        said = turn.content if turn.actor == "user" else turn.results[0].content if turn.results else ""
        if _ELIDED.match(plain(said)):
            report.note("old outputs were elided from the history: their text is lost")
        # The command that the program found in the text, for those who count commands; the text itself holds it already.
        if turn.actor == "agent" and not turn.calls and (command := label(message.get("action"))):
            turn.fields["extra"] = {"command": command}
        put(turn, script)


def _write_steps(steps: list[dict[str, Any]], script: Transcript, report: Report) -> None:
    report.note("the file holds no history: the turns are rebuilt from its steps")
    seen_by = [records(step.get("query")) or records(step.get("messages")) for step in steps]
    for n, step in enumerate(steps):
        if n == 0:
            asked = [message for message in seen_by[0] if message.get("role") in ("system", "user")]
            _write_history(asked, script, report)
        if told := _between(seen_by[n], seen_by[n + 1] if n + 1 < len(steps) else []):
            _write_history(told, script, report)
            continue
        spoken = {key: step.get(key) for key in ("tool_calls", "action", "thinking_blocks")}
        command = first(step.get("action")) or ""
        if not spoken["tool_calls"] and command.isidentifier() and any(s.get("actions") for s in script.steps):
            spoken["tool_calls"] = [
                {"function": {"name": command, "arguments": {}}}
            ]  # as the last one mostly is: submit
        _write_history([{"role": "assistant", "content": step.get("response"), **spoken}], script, report)
        seen = shown(step.get("observation"))
        if script.steps[-1]["actions"]:
            script.observe(seen, call_id=first(*items(step.get("tool_call_ids"))[:1], script.waiting[-1]))
        elif seen and n + 1 < len(steps):
            script.say("user", seen)


def _between(query: list[dict[str, Any]], later: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the model wrote after a query and what came of it, as the query of the next step holds it; none where it does not.

    The newest turns of a query are whole: a program that elides old outputs has not yet done so.
    """
    told = later[len(query) :] if query else []
    return told if told and told[0].get("role") == "assistant" and _is_same(query, later) else []


def _is_same(query: list[dict[str, Any]], later: list[dict[str, Any]]) -> bool:
    """Does the later query go on from this one? What it says may have been elided since."""
    return [message.get("role") for message in query] == [message.get("role") for message in later[: len(query)]]
