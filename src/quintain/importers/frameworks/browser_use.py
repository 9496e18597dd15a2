"""Histories of browser-use: `AgentHistoryList.save_to_file()`, what `agent.run()` returned as JSON, a run a file or line.

Each step has what the model wrote, its actions and their results. The task, and the pages as the model saw them, are not in
the file: only their addresses are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import exit_status, outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, matching_share, only_objects
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_list, dicts_in, nonblank, parse_time, short_fields, to_text

_NOTE = (
    "the log has neither the task nor the pages that the model saw, only their addresses (in `extra`): a model trained on "
    "these turns would learn to act on pages that it does not see"
)
_STATE = ("evaluation_previous_goal", "memory", "next_goal")
"""What the model writes beside its actions."""


def _detect(probe: Probe) -> float:
    """Match a history of steps, each with what the model wrote, the results and the state of the browser."""
    return 0.96 * matching_share(probe, lambda row: any(map(_is_step, as_list(row.get("history"))[:5])), "history")


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in only_objects(log.rows(report, ("history",)), report):
        script = Transcript()
        last: dict[str, Any] = {}
        for step in row.get("history") or ():
            if _is_step(step):
                last = _add(script, step, report) or last
            else:
                report.skip("step of another shape")
        report.note(_NOTE)
        judged = as_dict(last.get("judgement")).get("verdict")
        claimed = {"success_by_agent": last["success"]} if isinstance(last.get("success"), bool) else {}
        yield from build_session_run(
            script,
            report,
            line,
            agent="browser-use",
            outcome=outcome_from(judged if isinstance(judged, bool) else None, exit_status(last.get("error"))),
            extra=claimed,
        )


IMPORTER = Importer("browser_use", "browser-use history", _detect, _read)


def _is_step(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= {"model_output", "result", "state"}


def _listed(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; early versions have one object."""
    return dicts_in(value if isinstance(value, list) else [value])


def _add(script: Transcript, step: dict[str, Any], report: Report) -> dict[str, Any]:
    """Add a step and return its last result."""
    wrote, results = as_dict(step.get("model_output")), _listed(step.get("result"))
    about, page = as_dict(step.get("metadata")), as_dict(step.get("state"))
    if not wrote:
        report.skip("step without an answer of the model")
        return results[-1] if results else {}
    state = as_dict(wrote.get("current_state")) or wrote
    shown = {key: state[key] for key in _STATE if nonblank(state.get(key))}
    actions = [
        (name, given) for action in _listed(wrote.get("action")) for name, given in action.items() if given is not None
    ]
    script.add_agent_turn(
        to_text(shown) if shown else "",
        thought=nonblank(wrote.get("thinking")),
        actions=[make_call(name, given) for name, given in actions],
        timestamp=parse_time(about.get("step_start_time")),
        extra=short_fields({"url": page.get("url"), "title": page.get("title")}),
        train=False if about.get("step_number") == 0 else None,  # actions of the program, before the model's first
    )
    for result in results[: len(actions)]:
        error = nonblank(result.get("error"))
        seen = nonblank(error, result.get("extracted_content"), result.get("long_term_memory"))
        script.add_result(seen or "", is_error=error is not None)
    return results[-1] if results else {}
