"""Runs of smolagents: `agent.memory.get_full_steps()`, the result of a run with its steps, and the answers of its benchmark.

A code agent writes its code in the text of its answer and gets the output as text, which both stay text. A tool agent
makes calls. The steps do not name the model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, runs_or_parts
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import Turn, append_turn, parse_message
from quintain.importers.transcripts.message_parts import Result, plain_text, visible_content
from quintain.importers.transcripts.transcript import Transcript
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time, parse_usage, to_text
from quintain.records.trajectory import Task

_ACTION = {"model_output", "observations", "error"}
_ACTED = {"tool_calls", "code_action", "action_output"}
_ENDS = {"AgentMaxStepsError": "max_steps", "AgentGenerationError": "AgentGenerationError"}
"""Errors that end a run -> exit status; the agent goes on after the others."""


def _detect(probe: Probe) -> float:
    """Match steps, or records with a list of steps."""
    rows = probe.objects
    if probe.shape in {"array", "lines"} and any(map(_is_action, rows)) and all(map(_is_step, rows)):
        return 0.96
    return 0.96 if matching_share(probe, _has_run, "steps", "intermediate_steps") > 0.5 else 0.0


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in runs_or_parts(log, report, lambda row: isinstance(row, dict) and not _has_run(row)):
        if isinstance(row, list):
            yield from _run(row, report, line, None)
        elif _is_run(as_dict(row).get("steps")):
            yield from _run(as_list(row["steps"]), report, line, nonblank(row.get("state")))
        elif _is_memory(as_dict(row).get("intermediate_steps")):
            yield from _answered(row, report, line)
        else:
            report.reject(line, f"expected a step, got {type(row).__name__}")


IMPORTER = Importer("smolagents", "smolagents run", _detect, _read)


def _has_run(row: dict[str, Any]) -> bool:
    return _is_run(row.get("steps")) or _is_memory(row.get("intermediate_steps"))


def _answered(row: dict[str, Any], report: Report, line: int) -> Iterator[Run]:
    """Yield the run of a question of the benchmark."""
    script = Transcript()
    _write_memory(dicts_in(row["intermediate_steps"]), script, report)
    answer = row.get("true_answer")
    yield from build_session_run(
        script,
        report,
        line,
        task=Task(
            id=nonblank(row.get("task_id")),
            metadata={"answer": answer} if isinstance(answer, str | int | float) else {},
        ),
        prompt=nonblank(row.get("augmented_question"), row.get("question")),
        agent="smolagents",
        model=nonblank(row.get("model_id"), row.get("agent_name")),
    )


def _is_action(value: Any) -> bool:
    known = as_dict(value).keys()
    return known >= _ACTION and not _ACTED.isdisjoint(known)


def _is_step(value: Any) -> bool:
    known = as_dict(value).keys()
    return (
        _is_action(value) or {"task", "task_images"} <= known or {"plan", "timing"} <= known or "system_prompt" in known
    )


def _is_run(value: Any) -> bool:
    return isinstance(value, list) and any(map(_is_action, value[:5])) and all(map(_is_step, value[:5]))


def _run(steps: list[Any], report: Report, line: int | None, state: str | None) -> Iterator[Run]:
    writer = _Writer(report)
    if prompt := next(filter(None, map(_system_prompt, dicts_in(steps))), None):
        writer.script.add_message("system", prompt)
    for step in dicts_in(steps):
        writer.write(step)
    has_task = any(nonblank(step.get("task")) for step in dicts_in(steps))
    yield from build_session_run(
        writer.script,
        report,
        line,
        prompt=None if has_task else "",
        agent="smolagents",
        outcome=outcome_from(None, _ENDS.get(writer.error or "", state if state != "success" else None)),
    )


@dataclass
class _Writer:
    """Writes steps as turns."""

    report: Report
    script: Transcript = field(default_factory=Transcript)
    error: str | None = None
    """Type of the error of the last step."""

    def write(self, step: dict[str, Any]) -> None:
        if _is_action(step):
            self._write_action(step)
        elif "plan" in step:
            self.script.add_agent_turn(to_text(step["plan"]), train=False, extra={"planning": True}, **_about(step))
            self.script.add_message("user", "Now proceed and carry out this plan.")
        elif "task" in step:
            self.script.add_message("user", to_text(step["task"]))
        elif "system_prompt" not in step:
            self.report.skip(f"step: {', '.join(list(step)[:3])}")

    def _write_action(self, step: dict[str, Any]) -> None:
        output, error = as_dict(step.get("model_output_message")), as_dict(step.get("error"))
        text = step.get("model_output") if step.get("model_output") is not None else output.get("content")
        calls = as_list(step.get("tool_calls")) or as_list(output.get("tool_calls"))
        if any(_is_in_text(call, plain_text(visible_content(text))) for call in dicts_in(calls)):
            calls = []
        self.error = nonblank(error.get("type"))
        if not output and step.get("model_output") is None:  # the answer at the limit of steps, or a model that failed
            if answer := to_text(step.get("action_output")):
                self.script.add_agent_turn(answer, **_about(step))
            return
        turn = parse_message({"role": "assistant", "content": text, "tool_calls": calls}, "step", self.report.refuse)
        if turn is None:
            return
        turn.fields |= _about(step)
        turn.fields["model"] = nonblank(as_dict(output.get("raw")).get("model"))
        append_turn(turn, self.script)
        failure = nonblank(error.get("message"), error.get("type"))
        if not turn.calls:
            self._write_text(step, failure)
        else:
            for result in _results(turn, step, failure, self.report):
                self.script.add_result(result.content, call_id=result.call_id, is_error=result.is_error)

    def _write_text(self, step: dict[str, Any], failure: str | None) -> None:
        """Write output and error of code as the texts that the model gets, unless they end the run."""
        observed = nonblank(step.get("observations"))
        if observed and not step.get("is_final_answer"):
            self.script.add_message("user", f"Observation:\n{observed}")
        if failure:
            self.script.add_message("user", f"Error:\n{failure}", extra={"error": self.error})


def _system_prompt(step: dict[str, Any]) -> str:
    """Return the system prompt among the inputs of a step."""
    inputs = dicts_in(step.get("model_input_messages"))
    prompt = next((m.get("content") for m in inputs if m.get("role") == "system"), step.get("system_prompt"))
    return plain_text(visible_content(prompt))


def _results(turn: Turn, step: dict[str, Any], failure: str | None, report: Report) -> list[Result]:
    observed = as_text(step.get("observations"))
    ids = [call["call_id"] for call in turn.calls]
    if failure:
        named = (call for call in turn.calls if f"'{call['tool']}'" in failure and str(call["args"]) in failure)
        failed = next(named, turn.calls[0])
        return [Result("\n".join(filter(None, [observed, failure])), failed["call_id"], True)]
    return _shared_results(observed, ids, report)


def _is_in_text(call: dict[str, Any], text: str) -> bool:
    """Whether a call is code that the program took out of the agent's text."""
    code = as_dict(call.get("function")).get("arguments", call.get("arguments"))
    return isinstance(code, str) and bool(code.strip()) and code.strip() in text


def _about(step: dict[str, Any]) -> dict[str, Any]:
    message = as_dict(step.get("model_output_message"))
    start = as_dict(step.get("timing")).get("start_time", step.get("start_time"))
    return {"timestamp": parse_time(start), "usage": parse_usage(step.get("token_usage"), message.get("token_usage"))}


_CALLS, _OBSERVED, _FAILED = "Calling tools:\n", "Observation:\n", "Error:\n"
"""Beginnings of messages, as `ActionStep.to_messages` writes them."""
_ROLES = frozenset({"tool-call", "tool-response"})
_SHARED = "several calls share one observation in the log: it is attached to the first of them"
_MAX_CHARS = 100_000
"""Characters of a list of calls that is read: Python's parser takes about a hundred bytes for each. Longer ones stay text."""


def _is_memory(value: Any) -> bool:
    """Whether a value is a list of messages with roles of smolagents."""
    messages = dicts_in(value)
    return len(messages) > 1 and any(as_text(message.get("role")) in _ROLES for message in messages)


def _write_memory(messages: Iterable[dict[str, Any]], script: Transcript, report: Report) -> None:
    """Add the turns of messages that smolagents builds of its memory (`write_memory_to_messages`) to a transcript.

    Its benchmark and GAIA runs store them. The calls of a step are a message of their own, `Calling tools:` with the
    list as Python prints it.
    """
    answer: dict[str, Any] | None = None
    waiting: list[str | None] = []
    for message in chain(messages, [{}]):
        role, text = as_text(message.get("role")), plain_text(visible_content(message.get("content")))
        if role == "tool-call":
            answer = _with_calls(answer or {"role": "assistant", "content": ""}, text)
            continue
        if answer is not None:
            waiting = _append(answer, script, report)
            answer = None
        if role == "assistant":
            answer = {"role": "assistant", "content": text}
        elif role == "tool-response":
            _observe(text, waiting, script, report)
            waiting = []
        elif message:
            _append(message, script, report)


def _with_calls(answer: dict[str, Any], text: str) -> dict[str, Any]:
    """Return an answer with the calls of a message; code in the answer's text is not a call, and broken calls stay text."""
    calls, written = _parsed(text), answer["content"]
    if not calls:
        return {**answer, "content": "\n".join(filter(None, (written, text)))}
    if any(_code(call) and _code(call) in written for call in calls):
        return answer
    announced = "\n".join(map(_announcement, calls))
    return {**answer, "content": "" if written == announced else written, "tool_calls": calls}


def _parsed(text: str) -> list[dict[str, Any]]:
    if not text.startswith(_CALLS) or len(text) > _MAX_CHARS:
        return []
    try:
        return dicts_in(ast.literal_eval(text.removeprefix(_CALLS)))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return []


def _code(call: dict[str, Any]) -> str:
    return as_text(as_dict(call.get("function")).get("arguments")).strip()


def _announcement(call: dict[str, Any]) -> str:
    """Return the text that the program writes for a call of a model that wrote none."""
    function = as_dict(call.get("function"))
    arguments = function.get("arguments")
    return f"Tool call {call.get('id')}: calling '{function.get('name')}' with arguments: {arguments}"


def _observe(text: str, waiting: list[str | None], script: Transcript, report: Report) -> None:
    """Add an observation or an error as the result of the calls of its step, or else as the text that the model gets."""
    if not waiting:
        script.add_message("user", text)
        return
    content = text.removeprefix(f"Call id: {waiting[0]}\n")
    is_error = content.startswith(_FAILED)
    content = content.removeprefix(_FAILED).removeprefix(_OBSERVED)
    for result in _shared_results(content, waiting, report):
        script.add_result(result.content, call_id=result.call_id, is_error=is_error)


def _shared_results(observed: str, call_ids: list[str | None], report: Report) -> list[Result]:
    """Return the results of calls; the log joins those of several calls by line feeds."""
    pieces = observed.split("\n") if len(call_ids) > 1 else [observed]
    if len(pieces) == len(call_ids):
        return [Result(piece, call_id) for piece, call_id in zip(pieces, call_ids, strict=True)]
    report.note(_SHARED)
    return [Result(observed, call_ids[0])]


def _append(message: dict[str, Any], script: Transcript, report: Report) -> list[str | None]:
    """Append a message and return the ids of its calls."""
    turn = parse_message(message, "message", report.refuse)
    if turn is None:
        return []
    append_turn(turn, script)
    return [call["call_id"] for call in turn.calls]
