"""A recorder around any agent loop: it never breaks the loop that it records.

    recorder = Recorder(agent="my-agent", model="qwen3-4b")
    with recorder.run("Fix the failing test") as run:
        run.agent("I will look at it.", calls=[("read_file", {"path": "a.py"}, "c1")])
        run.result("def f(): ...", call_id="c1")
        run.outcome("success", reward=1.0)
    run.trajectory_id

Failures while recording (a value of the wrong type, a locked database) are logged and kept in `run.failures`; none reaches
the loop. A bad value is converted or left out, and the rest of the run is kept. A run that the store does not accept within
seconds is written to the inbox, from where it can be imported.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec

from pydantic_core import to_jsonable_python

from quintain.errors import InvalidInput
from quintain.importers.run_splitting import split_trajectory
from quintain.importers.transcripts.chat_messages import read_turns
from quintain.importers.transcripts.message_parts import count_invalid
from quintain.importers.transcripts.transcript import Transcript
from quintain.jobs.directory import write_atomically
from quintain.records.imports import BOTH_LEVELS, RedactionLevel, RunLink
from quintain.records.trajectory import Actor, AgentInfo, Outcome, OutcomeStatus, Step, Trajectory
from quintain.redaction.redact import redact, redact_by_step, redact_text
from quintain.settings import Settings, read_settings
from quintain.tools.dict_calls.sanitizer import Sanitizer
from quintain.tools.services import utc_now

logger = logging.getLogger(__name__)
P = ParamSpec("P")

_WAIT_S = 2.0
"""Seconds that the database may block the loop; after that the run goes to the inbox."""
_MOST_FAILURES = 1000
_FAILURE_CHARS = 500

Call = tuple[str, Any] | tuple[str, Any, str | None]
"""A tool call: name, arguments (an object, or the JSON text that the model wrote) and optional id."""


def _never_raises(method: Callable[Concatenate[Recording, P], None]) -> Callable[Concatenate[Recording, P], None]:
    @functools.wraps(method)
    def guarded(self: Recording, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # the boundary to the recorded loop
            self.fail(f"{method.__name__}: {type(error).__name__}", error)

    return guarded


@dataclass(frozen=True)
class Recorder:
    """Creates recordings; keeps no connection open between them and is safe to share between threads."""

    agent: str = "unknown"
    model: str | None = None
    version: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON schemas of the tools that the agent has, OpenAI function style."""
    tags: Sequence[str] = ()
    home: Path | str | None = None
    """Home folder; None: the default of `quintain serve`."""

    def run(
        self,
        task: str | Mapping[str, Any],
        *,
        session_id: str | None = None,
        group_id: str | None = None,
        tags: Sequence[str] | None = (),
    ) -> Recording:
        """Return the recording of one run, for a `with` statement.

        Args:
            task: The prompt, or the fields of `Task` (id, prompt, type, environment, ...).
            session_id: Session id in the log of the loop, if any.
            group_id: Shared by several attempts of one task.
            tags: Labels in addition to those of the recorder.
        """
        return Recording(self, task, {"session_id": session_id, "group_id": group_id, "tags": tags})


@dataclass
class Recording:
    """One run while it happens; stored when the `with` block ends. No method raises."""

    recorder: Recorder
    task: str | Mapping[str, Any]
    about: Mapping[str, Any]
    turns: Transcript = field(default_factory=lambda: Transcript(memory_chars=math.inf))
    failures: list[str] = field(default_factory=list)
    """Messages about values that were changed or left out; secrets in them are redacted."""
    trajectory_id: str | None = None
    """Id of the stored run, or of the last part of a very long one; None until it is stored."""
    _outcome: Outcome | None = None

    def fail(self, message: str, error: Exception | None = None) -> None:
        """Note a value that was changed or left out."""
        try:
            words = redact_text(f"{message}: {error}" if error is not None else message)[0]
        except Exception:  # an exception that str() cannot convert
            words = "unknown failure" if error is None else message
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(words[:_FAILURE_CHARS])
            logger.warning("Incomplete recording: %s", self.failures[-1])

    @property
    def _sanitizer(self) -> Sanitizer:
        return Sanitizer(self.fail)

    @_never_raises
    def system(self, text: str) -> None:
        """Record a system prompt."""
        self.turns.add_message("system", self._sanitizer.text(text, "system"))

    @_never_raises
    def user(self, text: str) -> None:
        """Record a message of the user, or of whoever talks with the agent."""
        self.turns.add_message("user", self._sanitizer.text(text, "user"))

    @_never_raises
    def agent(
        self,
        text: str = "",
        *,
        thought: str | None = None,
        calls: Sequence[Call] = (),
        model: str | None = None,
        usage: Mapping[str, int] | None = None,
    ) -> None:
        """Record a turn of the agent: its text, thought and tool calls."""
        sanitize = self._sanitizer
        self.turns.add_agent_turn(
            sanitize.text(text, "agent"),
            thought=sanitize.text(thought, "thought") or None,
            actions=sanitize.calls(calls),
            model=sanitize.text(self.recorder.model if model is None else model, "model") or None,
            usage=sanitize.usage(usage),
            timestamp=utc_now(),
        )

    @_never_raises
    def result(self, content: Any, *, call_id: str | None = None, is_error: bool = False) -> None:
        """Record the result of a call; without an id it answers the oldest call without a result."""
        sanitize = self._sanitizer
        failed = sanitize.to_bool(is_error, "is_error")
        self.turns.add_result(
            sanitize.to_json_text(content, "result"), call_id=sanitize.call_id(call_id), is_error=failed
        )

    @_never_raises
    def messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Record chat messages, OpenAI or Anthropic style, in order."""
        turns = [
            self._sanitizer.value(message, "messages") for message in self._sanitizer.members(messages, "messages")
        ]
        read_turns(turns, self.turns, count_invalid(self.fail))

    @_never_raises
    def reward(self, value: float) -> None:
        """Record the reward of the agent's last turn."""
        last = next(step for step in reversed(self.turns.steps) if step["actor"] == "agent")
        last["reward"] = self._sanitizer.number(value, "reward")

    @_never_raises
    def outcome(self, /, status: str, *, reward: float | None = None, **scores: float) -> None:
        """Record how the run ended: success, failure, error, truncated or unknown. Leave it out if you do not know."""
        number = self._sanitizer.number
        known = {name: value for name, score in scores.items() if (value := number(score, name)) is not None}
        self._outcome = Outcome(status=OutcomeStatus(status), reward=number(reward, "reward"), scores=known)

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store the run; an exception of the loop propagates and sets the outcome to `error` unless one was recorded."""
        if kind is not None and self._outcome is None:
            self._outcome = Outcome(status=OutcomeStatus.ERROR, exit_status=kind.__name__)
        self._close()

    @_never_raises
    def _close(self) -> None:
        if not self.turns.steps:
            raise InvalidInput("expected at least one recorded turn, got none")
        home = Path(self.recorder.home).expanduser() if self.recorder.home else None
        parts = self._parts()
        try:
            settings = read_settings(home)
        except InvalidInput:
            if home is not None:
                _write_to_inbox(_raw_document(parts | {"steps": list(self.turns.steps)}, BOTH_LEVELS), home / "inbox")
            raise
        try:
            run = self.turns.trajectory(format="recorder", **parts)
        except Exception:
            _write_to_inbox(
                _raw_document(parts | {"steps": list(self.turns.steps)}, settings.redact), settings.inbox_dir
            )
            raise
        run, redactions = redact_by_step(run, settings.redact)
        try:
            self.trajectory_id = _store(split_trajectory(run, redactions=redactions), settings)
        except Exception:
            _write_to_inbox(run.model_dump_json(exclude_defaults=True), settings.inbox_dir)
            raise

    def _parts(self) -> dict[str, Any]:
        """Return the fields of the run other than its turns."""
        sanitize, by = self._sanitizer, self.recorder
        ids = {name: self.about[name] for name in ("session_id", "group_id")}
        listed = sanitize.members(by.tools, "tools")
        tools = [sanitize.value(tool, "tools") for tool in listed if isinstance(tool, Mapping)]
        if len(tools) < len(listed):
            self.fail("tools: expected JSON schemas as objects; the others were left out")
        return {
            "task": sanitize.task(self.task),
            "agent": AgentInfo(
                name=sanitize.text(by.agent, "agent") or "unknown",
                version=sanitize.text(by.version, "version") or None,
                model=sanitize.text(by.model, "model") or None,
            ),
            "tools": tools,
            "outcome": self._outcome,
            "episode_key": f"recording:{uuid.uuid4().hex}",
            "tags": sanitize.tags(by.tags, self.about["tags"]),
            **{name: None if value is None else sanitize.text(value, name) for name, value in ids.items()},
        }


def _store(parts: Sequence[Trajectory], settings: Settings) -> str:
    """Store the parts of a run and return the id of the last one, which has the outcome."""
    from quintain.store.store import open_store

    links = [RunLink(identity=later.identity, continues=earlier.identity) for earlier, later in pairwise(parts)]
    store = open_store(settings.url, wait_s=_WAIT_S)
    try:
        added = store.trajectories.add_many(parts, utc_now())
        store.trajectories.link(links)
    finally:
        store.close()
    return added[-1].id


def _raw_document(parts: Mapping[str, Any], levels: Sequence[RedactionLevel]) -> str:
    """Return the fields of a run that did not validate, as JSON."""
    plain = {name: to_jsonable_python(part) for name, part in parts.items() if part is not None}
    if levels:
        # Redaction works on records: any record with the document in a free field does.
        wrapped = Trajectory(steps=(Step(actor=Actor.AGENT),), extra=plain)
        plain = redact(wrapped, levels).extra
    return json.dumps(plain, ensure_ascii=False)


def _write_to_inbox(document: str, inbox: Path) -> None:
    """Write a run that the store did not accept to the inbox, atomically."""
    inbox.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = inbox / f"recorded-{uuid.uuid4().hex[:12]}.json"
    write_atomically(path, document.encode())
    logger.warning("Run written to %s; import it with import_trajectories", path)
