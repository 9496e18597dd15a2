"""SWE-agent trajectories (`<instance>.traj`) of function-calling and text protocols.

`history` contains the messages as the model saw and wrote them; steps of `trajectory` after its end are added, and without
a history all of them are read. Where the agent acted by text, its text stays text and the answer a turn of the user: that
is the protocol that it was taught. What the program writes in place of a reply when a limit ends the run is not a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from quintain.importers.harnesses.swe_bench_reports import find_verdict
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, object_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import append_turn, parse_message
from quintain.importers.transcripts.message_parts import plain_text, visible_content
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_list, dicts_in, nonblank, parse_json_text
from quintain.records.trajectory import Task

MAX_PATCH = 100_000
"""Characters up to which a submitted patch is kept."""

_READ = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content", "thinking_blocks")
_ELIDED = re.compile(r"^Old (environment output|observation|output): \(", re.IGNORECASE)


def _detect(probe: Probe) -> float:
    """Match objects with SWE-agent's history or steps."""
    whole = probe.first
    history, steps = dicts_in(whole.get("history")), dicts_in(whole.get("trajectory"))
    if any("role" in message and {"message_type", "agent"} & message.keys() for message in history):
        return 0.96
    if any("response" in step and "observation" in step for step in steps):
        return 0.95
    if probe.name.endswith(".traj") and history and all("role" in message for message in history):
        return 0.9
    return 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in object_rows(log, report):
        # An agent that tries again keeps its attempts, and once more the one that it submitted beside them.
        attempts = dicts_in(row.get("attempts"))
        best = as_dict(row.get("info")).get("best_attempt_idx")
        for n, attempt in enumerate(attempts):
            yield from _run(line, {**row, **attempt}, log, report, attempt=n, is_judged=n == best)
        if not attempts:
            yield from _run(line, row, log, report)


IMPORTER = Importer("swe_agent", "SWE-agent trajectory", _detect, _read)


def _run(
    line: int, row: dict[str, Any], log: LogFile, report: Report, *, attempt: int | None = None, is_judged: bool = True
) -> Iterator[Run]:
    script = Transcript()
    info = as_dict(row.get("info"))
    status = nonblank(info.get("exit_status"))
    history, steps = (_replies(dicts_in(row.get(name)), status, report) for name in ("history", "trajectory"))
    if history:
        _write_history(history, script, report)
        _write_unrecorded(steps, history, script, report)
    else:
        _write_steps(steps, script, report)
    settings = as_dict(parse_json_text(row.get("replay_config")))
    problem = as_dict(settings.get("problem_statement"))
    stem = log.path.stem if log.path.suffix == ".traj" else None
    instance = nonblank(problem.get("id"), row.get("instance_id"), stem)
    resolved = find_verdict(log, [row.get("report"), info], instance) if is_judged else None
    cost = as_dict(info.get("model_stats")).get("instance_cost")
    yield from build_session_run(
        script,
        report,
        line,
        prompt=nonblank(problem.get("text"), problem.get("problem_statement")),
        task=Task(id=instance, environment=nonblank(row.get("environment"))),
        agent="swe-agent",
        version=info.get("swe_agent_version"),
        model=as_dict(as_dict(settings.get("agent")).get("model")).get("name"),
        outcome=outcome_from(resolved, status),
        episode_key="" if attempt is None else f"attempt-{attempt}",
        extra=({"cost": cost} if isinstance(cost, int | float) and cost else {}) | submission_of(info, report),
    )


def submission_of(info: dict[str, Any], report: Report) -> dict[str, str]:
    """Return the submitted patch for a run's `extra`."""
    submission = nonblank(info.get("submission"))
    if submission and len(submission) > MAX_PATCH:
        report.note(f"patches of more than {MAX_PATCH:,} characters are not kept")
    return {"submission": submission} if submission and len(submission) <= MAX_PATCH else {}


def _replies(records: list[dict[str, Any]], status: str | None, report: Report) -> list[dict[str, Any]]:
    """Return messages or steps up to the one that the program wrote in place of a reply, as it ended the run."""
    ended = (status or "").removeprefix("submitted (").removesuffix(")")
    spoken = [n for n, each in enumerate(records) if "response" in each or each.get("role") == "assistant"]
    last = records[spoken[-1]] if spoken else {}
    response = last.get("response", last.get("content"))
    if not ended.startswith("exit_") or last.get("tool_calls") or last.get("action", "-") not in ("", ended):
        return records
    if response is None or response != last.get("thought", response):
        return records
    report.note("the program ended these runs: what it wrote in place of a reply is left out")
    return records[: spoken[-1]]


def _write_history(history: list[dict[str, Any]], script: Transcript, report: Report) -> None:
    for message in history:
        if message.get("is_demo") is True or message.get("message_type") == "demonstration":
            report.skip("demonstration")
            continue
        ids = as_list(message.get("tool_call_ids"))
        known = {key: message[key] for key in _READ if message.get(key) is not None}
        if known.get("role") == "tool" and ids:
            known.setdefault("tool_call_id", ids[0])
        turn = parse_message(known, "message", report.refuse)
        if turn is None:
            continue
        content = turn.content if turn.actor == "user" else turn.results[0].content if turn.results else ""
        if _ELIDED.match(plain_text(content)):
            report.note("old outputs were elided from the history, and their text is lost")
        # The command that the program found in the text, for those who count commands; the text contains it already.
        if turn.actor == "agent" and not turn.calls and (command := nonblank(message.get("action"))):
            turn.fields["extra"] = {"command": command}
        append_turn(turn, script)


def _write_unrecorded(
    steps: list[dict[str, Any]], history: list[dict[str, Any]], script: Transcript, report: Report
) -> None:
    """Write the last steps that the history lacks: some versions end before the step that submits reaches it."""
    spoken = [message for message in history if message.get("role") == "assistant"]
    places = [n for n, step in enumerate(steps) if spoken and _is_step_of(step, spoken[-1])]
    left = steps[places[-1] + 1 :] if places else []
    recorded = steps[: places[-1]] if places else []
    rejected = [step for step in recorded if not any(_is_step_of(step, message) for message in spoken)]
    report.skip("reply that the program rejected and asked for again", len(rejected))
    for n, step in enumerate(left, 1):
        report.note("the last steps are not in the history: they are added from the steps beside it")
        _write_step(step, script, report, is_last=n == len(left))


def _is_step_of(step: dict[str, Any], message: dict[str, Any]) -> bool:
    """Whether a step is the one that a message of the agent became."""
    response, action = nonblank(step.get("response")), nonblank(step.get("action"))
    spoken = plain_text(visible_content(message.get("content"))).strip()
    if response is not None and spoken and response.strip() != spoken:
        return False
    return (response is not None and bool(spoken)) or (action is not None and action == message.get("action"))


def _write_steps(steps: list[dict[str, Any]], script: Transcript, report: Report) -> None:
    report.note("the file has no history: the turns are rebuilt from its steps")
    seen_by = [dicts_in(step.get("query")) or dicts_in(step.get("messages")) for step in steps]
    for n, step in enumerate(steps):
        if n == 0:
            asked = [message for message in seen_by[0] if message.get("role") in ("system", "user")]
            _write_history(asked, script, report)
        if messages := _between(seen_by[n], seen_by[n + 1] if n + 1 < len(steps) else []):
            _write_history(messages, script, report)
        else:
            _write_step(step, script, report, is_last=n + 1 == len(steps))


def _write_step(step: dict[str, Any], script: Transcript, report: Report, *, is_last: bool) -> None:
    spoken = {key: step.get(key) for key in ("tool_calls", "action", "thinking_blocks")}
    command = nonblank(step.get("action")) or ""
    if not spoken["tool_calls"] and command.isidentifier() and script.called:
        # as the last one mostly is: submit
        spoken["tool_calls"] = [{"function": {"name": command, "arguments": {}}}]
    _write_history([{"role": "assistant", "content": step.get("response"), **spoken}], script, report)
    observation = visible_content(step.get("observation"))
    if script.steps[-1]["actions"]:
        script.add_result(observation, call_id=nonblank(*as_list(step.get("tool_call_ids"))[:1], script.waiting[-1]))
    elif observation and not is_last:
        script.add_message("user", observation)


def _between(query: list[dict[str, Any]], later: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the model's reply and its result after a query, as the next step's query contains them; else [].

    The newest turns of a query are whole: a program that elides old outputs has not yet done so.
    """
    new_messages = later[len(query) :] if query else []
    roles = [message.get("role") for message in query]
    if not new_messages or new_messages[0].get("role") != "assistant":
        return []
    return new_messages if roles == [message.get("role") for message in later[: len(query)]] else []
