"""A recorder around any agent loop: it never breaks the loop that it records.

    recorder = Recorder(agent="my-agent", model="qwen3-4b")
    with recorder.run("Fix the failing test") as run:
        run.agent("I will look at it.", calls=[("read_file", {"path": "a.py"}, "c1")])
        run.result("def f(): ...", call_id="c1")
        run.outcome("success", reward=1.0)
    run.trajectory_id

What goes wrong while recording (a value that is no text, a database that is locked) is logged, kept in `run.failures`, and
costs the loop nothing: a bad value is mended or left out, the rest of the run is kept. A run that the store did not take
within seconds is written to the inbox, from where it can be imported.
"""

from __future__ import annotations

import functools
import json
import logging
import os
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
from quintain.records.imports import RunLink
from quintain.records.trajectory import Actor, AgentInfo, Outcome, OutcomeStatus, Step, Trajectory
from quintain.redaction.redact import redact, redact_text
from quintain.settings import Settings, read_settings
from quintain.tools.mending import Mender
from quintain.tools.services import utc_now

logger = logging.getLogger(__name__)
P = ParamSpec("P")

_WAIT_S = 2.0
"""How long the database may hold up the loop; then the run goes to the inbox."""
_MOST_FAILURES = 1000
_FAILURE_CHARS = 500

Call = tuple[str, Any] | tuple[str, Any, str | None]
"""A tool call: its name, its arguments (an object or the JSON text that the model wrote), and its id where it has one."""


def _never_raises(method: Callable[Concatenate[Recording, P], None]) -> Callable[Concatenate[Recording, P], None]:
    @functools.wraps(method)
    def guarded(self: Recording, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # the border to a stranger's loop
            self.fail(f"{method.__name__}: {type(error).__name__}", error)

    return guarded


@dataclass(frozen=True)
class Recorder:
    """Makes recordings; holds nothing open between them, and can be shared by threads."""

    agent: str = "unknown"
    model: str | None = None
    version: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    """JSON schemas of the tools that the agent has, OpenAI function style."""
    tags: Sequence[str] = ()
    home: Path | str | None = None
    """The home folder; None: as `quintain serve` finds it."""

    def run(
        self,
        task: str | Mapping[str, Any],
        *,
        session_id: str | None = None,
        group_id: str | None = None,
        tags: Sequence[str] | None = (),
    ) -> Recording:
        """A recording of one run, to be used in a `with` statement.

        Args:
            task: The prompt, or the fields of `Task` (id, prompt, type, environment, ...).
            session_id: Of the loop's own log, if it has one.
            group_id: Shared by several attempts of one task.
            tags: Labels besides those of the recorder.
        """
        return Recording(self, task, {"session_id": session_id, "group_id": group_id, "tags": tags})


@dataclass
class Recording:
    """One run while it happens; stored when the `with` block ends. No method raises."""

    recorder: Recorder
    task: str | Mapping[str, Any]
    about: Mapping[str, Any]
    turns: Transcript = field(default_factory=Transcript)
    failures: list[str] = field(default_factory=list)
    """What could not be recorded as it was, in words; secrets in them are redacted."""
    trajectory_id: str | None = None
    """Of the stored run, or the last part of a very long one; None before the end, or where it could not be stored."""
    _outcome: Outcome | None = None

    def fail(self, said: str, error: Exception | None = None) -> None:
        """Note that something could not be recorded as it was."""
        try:
            words = redact_text(f"{said}: {error}" if error is not None else said)[0]
        except Exception:  # an exception whose text cannot be made
            words = "something could not be recorded" if error is None else said
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(words[:_FAILURE_CHARS])
            logger.warning("a run could not be recorded whole: %s", self.failures[-1])

    @property
    def _mender(self) -> Mender:
        return Mender(self.fail)

    @_never_raises
    def system(self, text: str) -> None:
        """A system prompt."""
        self.turns.add_message("system", self._mender.text(text, "system"))

    @_never_raises
    def user(self, text: str) -> None:
        """What the user, or whoever talks with the agent, said."""
        self.turns.add_message("user", self._mender.text(text, "user"))

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
        """A turn of the agent: what it said, thought and called."""
        mend = self._mender
        self.turns.add_agent_turn(
            mend.text(text, "agent"),
            thought=mend.text(thought, "thought") or None,
            actions=mend.calls(calls),
            model=mend.text(self.recorder.model if model is None else model, "model") or None,
            usage=mend.usage(usage),
            timestamp=utc_now(),
        )

    @_never_raises
    def result(self, content: Any, *, call_id: str | None = None, is_error: bool = False) -> None:
        """What a call gave back; without an id it belongs to the first call that waits."""
        mend = self._mender
        failed = mend.truth(is_error, "is_error")
        self.turns.add_result(mend.written(content, "result"), call_id=mend.call_id(call_id), is_error=failed)

    @_never_raises
    def messages(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Chat messages, OpenAI or Anthropic style, in their order."""
        turns = [self._mender.value(message, "messages") for message in self._mender.members(messages, "messages")]
        read_turns(turns, self.turns, count_invalid(self.fail))

    @_never_raises
    def reward(self, value: float) -> None:
        """What the agent's last turn was worth."""
        last = next(step for step in reversed(self.turns.steps) if step["actor"] == "agent")
        last["reward"] = self._mender.number(value, "reward")

    @_never_raises
    def outcome(self, /, status: str, *, reward: float | None = None, **scores: float) -> None:
        """How the run ended: success, failure, error, truncated or unknown. Leave it out if you do not know."""
        number = self._mender.number
        known = {name: value for name, given in scores.items() if (value := number(given, name)) is not None}
        self._outcome = Outcome(status=OutcomeStatus(status), reward=number(reward, "reward"), scores=known)

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Store the run; an exception of the loop makes an outcome of status `error`, unless one was stated, and goes on."""
        if kind is not None and self._outcome is None:
            self._outcome = Outcome(status=OutcomeStatus.ERROR, exit_status=kind.__name__)
        self._close()

    @_never_raises
    def _close(self) -> None:
        if not self.turns.steps:
            raise InvalidInput("nothing was recorded: no turn of anybody")
        home = Path(self.recorder.home).expanduser() if self.recorder.home else None
        parts = self._parts()
        try:
            settings = read_settings(home)
        except InvalidInput:
            if home is not None:
                _keep(_whatever_there_is(parts | {"steps": self.turns.steps}, redacted=True), home / "inbox")
            raise
        try:
            run = self.turns.trajectory(format="recorder", **parts)
        except Exception:
            _keep(_whatever_there_is(parts | {"steps": self.turns.steps}, redacted=settings.redact), settings.inbox_dir)
            raise
        run = redact(run) if settings.redact else run
        try:
            self.trajectory_id = _stored(split_trajectory(run), settings)
        except Exception:
            _keep(run.model_dump_json(exclude_defaults=True), settings.inbox_dir)
            raise

    def _parts(self) -> dict[str, Any]:
        """What the run holds besides its turns."""
        mend, by = self._mender, self.recorder
        ids = {name: self.about[name] for name in ("session_id", "group_id")}
        given = mend.members(by.tools, "tools")
        tools = [mend.value(tool, "tools") for tool in given if isinstance(tool, Mapping)]
        if len(tools) < len(given):
            self.fail("a schema of `tools` is no object; left out")
        return {
            "task": mend.task(self.task),
            "agent": AgentInfo(
                name=mend.text(by.agent, "agent") or "unknown",
                version=mend.text(by.version, "version") or None,
                model=mend.text(by.model, "model") or None,
            ),
            "tools": tools,
            "outcome": self._outcome,
            "episode_key": f"recording:{uuid.uuid4().hex}",
            "tags": mend.tags(by.tags, self.about["tags"]),
            **{name: None if value is None else mend.text(value, name) for name, value in ids.items()},
        }


def _stored(parts: Sequence[Trajectory], settings: Settings) -> str:
    """The id under which the store took the run; of several parts that of the last, which has the outcome."""
    from quintain.store.store import open_store

    links = [RunLink(identity=later.identity, continues=earlier.identity) for earlier, later in pairwise(parts)]
    store = open_store(settings.url, wait_s=_WAIT_S)
    try:
        added = store.trajectories.add_many(parts, utc_now())
        store.trajectories.link(links)
    finally:
        store.close()
    return added[-1].id


def _whatever_there_is(parts: Mapping[str, Any], *, redacted: bool) -> str:
    """The parts of a run that could not be made of them, as JSON."""
    plain = {name: to_jsonable_python(part) for name, part in parts.items() if part is not None}
    if redacted:
        # Any record will do: all of its fields are looked through.
        wrapped = Trajectory(steps=(Step(actor=Actor.AGENT),), extra=plain)
        plain = redact(wrapped).extra
    return json.dumps(plain, ensure_ascii=False)


def _keep(document: str, inbox: Path) -> None:
    """Write a run that the store did not take to the inbox, whole or not at all."""
    inbox.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = inbox / f"recorded-{uuid.uuid4().hex[:12]}.json"
    aside = path.with_suffix(".part")
    with aside.open("w", encoding="utf-8") as file:
        file.write(document)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    logger.warning("the run was written to %s; import it with import_trajectories", path)
