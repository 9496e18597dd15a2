"""Browser agent runs: WebArena-like rows of pages and actions, and Mind2Web demonstrations.

The page after a call is the call's result; the page before the first action is a user turn. Actions
that are text stay text, and the pages after them are turns of the user. Addresses and screenshots stand in `extra` of the
turn that saw them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import status_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import (
    as_dict,
    as_name,
    as_score,
    as_text,
    dicts_in,
    nonblank,
    score_fields,
    short_fields,
)
from quintain.records.trajectory import AgentInfo, Outcome, Task

_ASKED = ("intent", "confirmed_task", "goal", "objective", "task", "instruction", "question")
_RUNS = ("trajectory", "actions", "steps")
_PAGES = ("axtree", "accessibility_tree", "observation", "cleaned_html", "dom", "html", "text_observation", "obs")
_WEB = {*_PAGES[:2], "cleaned_html", "dom", "html", "url", "screenshot_path", "screenshot"}
_METADATA = ("domain", "subdomain", "sites", "eval", "start_url")
_THOUGHTS = ("cot", "thought", "reasoning", "rationale")


def _detect(probe: Probe) -> float:
    """Match an intent with pages and actions, or Mind2Web's columns; other lists of steps do not match."""
    row = next((row for row in probe.rows if isinstance(row, dict)), probe.first)
    if row.keys() >= {"confirmed_task", "actions"}:
        return 0.97
    step_keys = set().union(*(step.keys() for step in _steps(row)[:4])) if _steps(row) else set()
    if not (step_keys & _WEB) or not (step_keys & {"action", "action_repr"}) or _asked(row) is None:
        return 0.0
    return 0.95 if "intent" in row or step_keys & {"axtree", "accessibility_tree"} else 0.75


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    for line, row in log.rows(report):
        asked = _asked(as_dict(row))
        if not isinstance(row, dict) or asked is None or not _steps(row):
            report.reject(line, "expected a row with a task text and a list of pages and actions")
            continue
        script = Transcript()
        script.add_message("user", asked)
        model = nonblank(row.get("model")) or nonblank(row.get("source"))
        reprs = row.get("action_reprs")
        for n, step in enumerate(_steps(row)):
            shown = reprs[n] if isinstance(reprs, list) and n < len(reprs) else None
            _add(script, step, nonblank(shown), report)
        if "confirmed_task" in row:
            report.note("Mind2Web's actions were demonstrated by people, not by a model")
        yield from build_run(
            script,
            report,
            line,
            group_id=as_name(row.get("task_id")),
            agent=AgentInfo(model=None if "confirmed_task" in row else model),
            task=Task(
                id=as_name(row.get("task_id")) or as_name(row.get("annotation_id")),
                prompt=asked,
                environment=nonblank(row.get("website"), row.get("env"), row.get("environment")),
                metadata=short_fields({key: row.get(key) for key in _METADATA}),
            ),
            outcome=_outcome(row),
        )


IMPORTER = Importer("web_agent", "web agent traces (WebArena, Mind2Web)", _detect, _read)


def _asked(row: dict[str, Any]) -> str | None:
    return nonblank(*(row.get(key) for key in _ASKED))


def _steps(row: dict[str, Any]) -> list[dict[str, Any]]:
    return next((steps for key in _RUNS if (steps := dicts_in(row.get(key)))), [])


def _add(script: Transcript, step: dict[str, Any], shown: str | None, report: Report) -> None:
    """Add a page, an action, or both; then the action was chosen on that page."""
    page = nonblank(*(step.get(key) for key in _PAGES))
    about = as_dict(step.get("metadata"))
    screenshot = nonblank(step.get("screenshot_path"), step.get("screenshot"))
    place = short_fields({"url": nonblank(step.get("url")), "screenshot": screenshot})
    acts = "action" in step or "operation" in step or "action_repr" in step
    if page is not None and script.has_acted and script.steps[-1].get("actions"):
        script.add_result(page)
        script.steps[-1]["extra"] = {**script.steps[-1].get("extra", {}), **({"led_to": place} if place else {})}
    elif page is not None:
        script.add_message("user", page, extra=place)
    if not acts:
        if page is None:
            report.skip("step without a page or an action")
        return
    operation, action = as_dict(step.get("operation")), step.get("action", step.get("action_repr"))
    message, calls = shown or "", []
    if operation:
        element = next((e.get("backend_node_id") for e in dicts_in(step.get("pos_candidates"))), None)
        wanted = {"value": operation.get("value"), "element": element}
        calls = [make_call(as_text(operation.get("op")).lower(), {k: v for k, v in wanted.items() if v})]
    elif isinstance(action, dict):
        message = as_text(action.get("raw_prediction")) or message
        names = (action.get(key) for key in ("action_name", "name", "type"))
        tool = nonblank(*names, as_name(action.get("action_type"))) or ""
        hidden = {"action_name", "action_type", "raw_prediction", "page_number"}
        calls = [make_call(tool, {k: v for k, v in action.items() if k not in hidden and v not in (None, "", [], {})})]
    else:
        message = message or as_text(action)
    thought = nonblank(*(source.get(key) for source in (about, step) for key in _THOUGHTS))
    script.add_agent_turn(message, thought=thought, actions=calls, reward=as_score(step.get("reward")))


def _outcome(row: dict[str, Any]) -> Outcome:
    """Return the outcome stated by the row; the name of a dataset is not a verdict."""
    scores = score_fields({key: row.get(key) for key in ("success", "is_success", "reward", "score")})
    verdict = next(iter(scores.values()), None)
    return Outcome(status=status_of(verdict), reward=scores.get("reward", scores.get("score")), scores=scores)
