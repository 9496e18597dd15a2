"""mini-swe-agent trajectories (`<instance>.traj.json`, versions 1 and 2), and dataset rows made from them.

In text mode the action is a block of code in the agent's text and the answer a message of the user; both stay as they are,
because that is the protocol to be trained. In tool mode calls and results are separate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from quintain.importers.coding_agents.swe_agent import submission_of
from quintain.importers.harnesses.swe_bench_reports import find_verdict
from quintain.importers.log_file import LogFile
from quintain.importers.outcome_fields import first_verdict, outcome_from
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import Importer, read_rows
from quintain.importers.run_builder import build_session_run
from quintain.importers.transcripts.chat_messages import ACTORS
from quintain.importers.transcripts.message_parts import plain_text, visible_content
from quintain.importers.transcripts.responses_api import items_to_messages
from quintain.importers.values import as_dict, as_list, as_text, dicts_in, nonblank, parse_time
from quintain.records.trajectory import Task

_BLOCK = re.compile(r"```(?:mswea_bash_command|bash)\n")
_CODE = re.compile(r"\s*<returncode>(-?\d+)</returncode>")


def _detect(probe: Probe) -> float:
    """Match files that name the program, or rows of messages in its text protocol."""
    best = 0.0
    if "messages" not in probe.fields:
        return best
    for row in map(as_dict, [*probe.rows, probe.document]):
        named = "mini_version" in as_dict(row.get("info")) or _named(row)
        messages = dicts_in(row.get("messages"))
        if named and isinstance(row.get("messages"), list):
            return 0.98
        if _is_text_mode(messages):
            best = max(best, 0.93 if {"patch", "verified", "instance_id"} & set(row) else 0.85)
    return best


def _read(log: LogFile, report: Report) -> Iterator[Run]:
    return read_rows(log, report, partial(_run, log=log))


IMPORTER = Importer("mini_swe_agent", "mini-swe-agent trajectory", _detect, _read)


def _named(row: dict[str, Any]) -> bool:
    return as_text(row.get("trajectory_format")).startswith("mini-swe-agent")


def _is_text_mode(messages: list[dict[str, Any]]) -> bool:
    """Whether the agent writes code blocks and the user answers with return codes."""
    texts = [(message.get("role"), plain_text(visible_content(message.get("content")))) for message in messages]
    acts = any(role == "assistant" and _BLOCK.search(text) for role, text in texts)
    return acts and any(role == "user" and _CODE.match(text) for role, text in texts)


def _run(row: dict[str, Any], line: int, report: Report, log: LogFile) -> Iterator[Run]:
    info = as_dict(row.get("info"))
    settings = as_dict(as_dict(info.get("config")).get("model"))
    model = nonblank(settings.get("model_name"), row.get("model"), row.get("model_name"))
    messages = dicts_in(row.get("messages"))
    exits = [as_dict(m.get("extra")).get("exit_status") for m in reversed(messages) if not _is_spoken(m)]
    stem = log.path.name.removesuffix(".traj.json") if log.path.name.endswith(".traj.json") else None
    # The program names the folder of a run after its instance.
    instance = nonblank(row.get("instance_id"), info.get("instance_id"), stem if stem in log.parts[:-1] else None)
    own = ({"resolved": row.get("verified")}, {"resolved": row.get("resolved")}, row.get("report"))
    is_file = bool(info) or _named(row)
    resolved = find_verdict(log, own, instance) if is_file else first_verdict(own, instance)
    cost = as_dict(info.get("model_stats")).get("instance_cost")
    ended = nonblank(info.get("exit_status"), *exits, row.get("exit_status"))
    yield from build_session_run(
        (each for message in messages for each in _messages(message, model, report)),
        report,
        line,
        task=Task(id=nonblank(instance, row.get("id"))),
        agent="mini-swe-agent",
        version=info.get("mini_version"),
        model=model,
        outcome=outcome_from(resolved, ended),
        extra=({"cost": cost} if isinstance(cost, int | float) and not isinstance(cost, bool) else {})
        | submission_of(info, report),
    )


def _is_spoken(message: dict[str, Any]) -> bool:
    """Whether a message is one of a chat, or a response or an item of the Responses API."""
    is_response = message.get("object") == "response" or message.get("type") == "function_call_output"
    return is_response or as_text(message.get("role")) in ACTORS


def _messages(message: dict[str, Any], model: str | None, report: Report) -> Iterator[dict[str, Any]]:
    """Yield the chat messages of a message; responses and items of the Responses API are several."""
    extra, role = as_dict(message.get("extra")), message.get("role")
    if not _is_spoken(message):
        report.skip(f"role:{role}")
        return
    if as_text(role) in ACTORS and message.get("object") != "response":
        spoken: Iterable[Any] = [{key: value for key, value in message.items() if key != "extra"}]
    else:
        spoken = items_to_messages(as_list(message.get("output")) if message.get("object") else [message])
    response, code = as_dict(extra.get("response")) or message, extra.get("returncode")
    for each in spoken:
        stated = message.get("timestamp")
        known = {**each, "timestamp": stated if parse_time(stated) is not None else extra.get("timestamp")}
        if each.get("role") == "assistant":
            known |= {"model": nonblank(response.get("model"), model), "usage": response.get("usage")}
        elif each.get("role") == "tool":
            known["is_error"] = _failed(each, code)
        yield known


def _failed(message: dict[str, Any], code: Any) -> bool:
    """Whether a result failed, by the return code beside the message or at the start of its text."""
    found = _CODE.match(plain_text(visible_content(message.get("content"))))
    return bool(code) if isinstance(code, int) else found is not None and int(found[1]) != 0
