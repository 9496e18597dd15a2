"""`quintain talk`: a conversation with an agent in the terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console

from quintain.cli.session import CommandRun, plain_console
from quintain.records.text import printable
from quintain.tools.catalog import tool
from quintain.tools.evaluation.conversations import TalkResult, talk_partner, watch_talk
from quintain.tools.invocation import check
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import Services

_WAIT_S = 55


def run_talk(use: CommandRun) -> int:
    """Go on with a conversation or answer as JSON by one call, else talk to an agent until the end. Return the exit status."""
    services = use.services()
    if use.json_out or use.arguments.get("end") or use.arguments.get("job_id"):
        result = _exchange(services, use.arguments)
        use.print_json(result) if use.json_out else _show(plain_console(), result, 0)
        return 1 if result.error is not None else 0
    return _talk(services, use)


def _talk(services: Services, use: CommandRun) -> int:
    """Send the message that is named, or else lines until an empty one, and end the conversation, which frees its slot."""
    console, shown, job_id = plain_console(), 0, None
    is_tty, named = sys.stdin.isatty(), use.arguments.get("message")
    if (agent := use.arguments.get("agent")) is not None:
        talk_partner(services, agent, use.arguments.get("environment"))  # refused before a person writes a line
    if is_tty and named is None:
        console.print("An empty line ends the conversation.")
    result: TalkResult | None = None
    for text in [named] if named is not None else iter(lambda: _line(is_tty), ""):
        asked = {"job_id": job_id} if job_id else use.arguments
        result = _exchange(services, {**asked, "message": text})
        if job_id is None and result.example:
            console.print(printable(f"What can be asked here: {result.example}"), style="dim")
        job_id = result.job_id
        shown = _show(console, result, shown + 1)
        if result.turn == "over":
            return 1 if result.error is not None else 0
    if result is None:
        return 0
    keep = use.own["keep"] or (
        is_tty and named is None and typer.confirm("Store the conversation as a run?", default=False)
    )
    result = _exchange(services, {"job_id": job_id, "end": "keep" if keep else "discard"})
    console.print(f"{'Stored, of' if result.kept else 'Not stored:'} {result.job_id}")
    return 0


def _line(is_tty: bool) -> str:
    """Return the next line of the person, empty at the end."""
    if is_tty:
        sys.stdout.write("> ")
        sys.stdout.flush()
    return sys.stdin.readline().strip()


def _exchange(services: Services, arguments: Mapping[str, Any]) -> TalkResult:
    """Send a message and wait for the answer, or for the end of the conversation."""
    more, is_waiting = check(tool("talk_to_agent"), arguments), False
    while True:
        for result in watch_talk(services, **{"wait_s": _WAIT_S, **more}):
            if result.turn != "agent":
                return result
            if result.status == "queued" and not is_waiting:
                is_waiting = True
                _show_queue(services, result.job_id)
            time.sleep(services.settings.poll_s)
        if "wait_s" in arguments:
            return result
        more = {"job_id": result.job_id}


def _show_queue(services: Services, job_id: str) -> None:
    """Print what a conversation waits for, apart from its text."""
    waiting_for = get_job(services, job_id).waiting_for
    jobs = ", ".join(waiting_for.held_by.values()) if waiting_for is not None else ""
    plain_console(stderr=True).print(printable(f"Waiting for a free slot{f', which {jobs} has' if jobs else ''}."))


def _show(console: Console, result: TalkResult, first: int) -> int:
    """Print the steps from the first on; return their number."""
    for step in result.steps[first:]:
        if step.get("thought"):
            console.print(printable(f"  ({step['thought']})"))
        for action in step.get("actions", ()):
            console.print(printable(f"  {action['tool']} {json.dumps(action.get('args', {}), ensure_ascii=False)}"))
        for observation in step.get("observations", ()):
            console.print(printable(f"  = {observation['content']}"))
        if step["actor"] == "agent" and step.get("message"):
            console.print(printable(str(step["message"])))
    if result.error is not None:
        console.print(printable(f"[{result.error.code}] {result.error.message}"))
    return len(result.steps)
