"""Trajectories of the Agent Data Protocol: a list of actions and observations, versions 1.0 to 1.3.

Consecutive actions with ids are the calls of one turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quintain.importers.outcome_fields import outcome_of
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import first_name, matching_share, row_importer
from quintain.importers.run_builder import build_run
from quintain.importers.transcripts.tool_schemas import declared_tools
from quintain.importers.transcripts.transcript import Transcript, make_call
from quintain.importers.values import as_dict, as_list, as_number, as_text, nonblank, short_fields
from quintain.records.trajectory import Task

_ACTIONS = frozenset({"api_action", "code_action", "message_action"})
_SEEN = frozenset({"text_observation", "image_observation", "web_observation", "json_observation"})


def _detect(probe: Probe) -> float:
    """Match rows whose `content` is a list of objects with `class_`."""
    return 0.97 * matching_share(probe, _is_adp, "content")


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    transcript = Transcript()
    for turn in _turns(as_list(row.get("content"))):
        kind = _kind(turn[0])
        if kind in _ACTIONS:
            _act(transcript, turn)
        elif kind in _SEEN:
            _see(transcript, turn[0], kind)
        else:
            report.skip(f"class_:{kind}")
    details = as_dict(row.get("details"))
    kept = {k: v for k, v in details.items() if isinstance(v, str | int | float) and len(str(v)) <= 200}
    yield from build_run(
        transcript,
        report,
        line,
        task=Task(id=first_name(row, ("id",))),
        tools=declared_tools(transcript),
        outcome=outcome_of(details),
        extra={"details": kept} if kept else {},
    )


IMPORTER = row_importer("adp", "Agent Data Protocol", _detect, _row)


def _is_adp(row: dict[str, Any]) -> bool:
    kinds = [_kind(item) for item in as_list(row.get("content"))[:3]]
    return bool(kinds) and all(kind in _ACTIONS | _SEEN for kind in kinds)


def _kind(item: Any) -> str:
    return as_text(as_dict(item).get("class_"))


def _turns(content: list[Any]) -> Iterator[list[dict[str, Any]]]:
    """Yield items one by one; consecutive calls with ids, of which only the first has an explanation, form one turn."""
    turn: list[dict[str, Any]] = []
    for item in map(as_dict, content):
        joins = _is_call(item) and not as_text(item.get("description")) and not as_text(item.get("reasoning_content"))
        if turn and not (joins and _is_call(turn[-1])):
            yield turn
            turn = []
        turn.append(item)
    if turn:
        yield turn


def _is_call(item: dict[str, Any]) -> bool:
    return _kind(item) in {"api_action", "code_action"} and nonblank(item.get("tool_call_id")) is not None


def _act(transcript: Transcript, turn: list[dict[str, Any]]) -> None:
    message, description = as_text(turn[0].get("content")), as_text(turn[0].get("description"))
    message = message if _kind(turn[0]) == "message_action" else ""
    thought = as_text(turn[0].get("reasoning_content"))
    rewards = [reward for item in turn if (reward := as_number(item.get("reward"))) is not None]
    transcript.add_agent_turn(
        message or description,
        thought="\n\n".join(filter(None, [thought, description if message else ""])),
        actions=[call for call in map(_call, turn) if call],
        reward=rewards[-1] if rewards else None,
    )


def _call(item: dict[str, Any]) -> dict[str, Any] | None:
    call_id = nonblank(item.get("tool_call_id"))
    if _kind(item) == "api_action":
        return make_call(as_text(item.get("function")), item.get("kwargs"), call_id)
    if _kind(item) == "code_action":
        return make_call(as_text(item.get("language")) or "code", {"code": as_text(item.get("content"))}, call_id)
    return None


def _see(transcript: Transcript, item: dict[str, Any], kind: str) -> None:
    """Add an observation: the result of the last call, or a user or system turn."""
    content, source = _content(item, kind), item.get("source")
    call_id = nonblank(item.get("tool_call_id"))
    if call_id is None and source == "user":
        transcript.add_message("user", content)
    elif not transcript.has_acted:
        transcript.add_message(
            "system" if source in ("system", "environment") and item.get("name") == "system" else "user", content
        )
    elif call_id is not None or transcript.waiting or kind == "web_observation":
        transcript.add_result(content, call_id=call_id, tool=nonblank(item.get("name")))
    else:
        transcript.add_message("system" if source == "system" else "user", content)
    if kind == "web_observation" and (place := _place(item)):
        step = transcript.steps[-1]
        known = {"led_to": place} if step["actor"] == "agent" else place
        step["extra"] = {**step.get("extra", {}), **known}
    reward = as_number(item.get("reward"))
    acted = [step for step in transcript.steps if step["actor"] == "agent"]
    if reward is not None and acted:
        acted[-1].setdefault("reward", reward)


def _place(item: dict[str, Any]) -> dict[str, Any]:
    """Return the page details that the agent did not read: its address and, if short, its HTML source."""
    return short_fields({"url": item.get("url"), "html": item.get("html") if nonblank(item.get("axtree")) else None})


def _content(item: dict[str, Any], kind: str) -> str | list[dict[str, Any]]:
    if kind == "image_observation":
        return [{"type": "image", "uri": item["content"]}] if nonblank(item.get("content")) else ""
    if kind == "web_observation":
        page = next((item[key] for key in ("axtree", "html", "url") if nonblank(item.get(key))), "")
        image = nonblank(as_dict(item.get("image_observation")).get("content"))
        return [{"type": "text", "text": page}, {"type": "image", "uri": image}] if image else page
    content = item.get("content")
    return content if isinstance(content, str) else str(content)
