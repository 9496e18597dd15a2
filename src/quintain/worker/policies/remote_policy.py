"""Policy of an agent behind an endpoint: episodes as conversations, several requests at a time.

Turns are native tool calls of the endpoint's protocol, or ReAct text if the agent's template is `react`. A failure of one
conversation (context exceeded, answer withheld, request unanswered) ends its episode. A failure of all (invalid key, no
credit, unknown model) is raised, as are `BROKEN_AFTER` consecutive unanswered requests. Answers are cached by conversation
history, so that a killed or resumed job pays for none of them twice.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from quintain.endpoints.client import identity
from quintain.endpoints.completion import Ask, AssistantMessage, Completion, price
from quintain.endpoints.conversation import ToolNames, sendable
from quintain.endpoints.faults import NOT_TAKEN, STOPPED, UNANSWERED
from quintain.endpoints.parallel import map_in_parallel
from quintain.errors import InvalidInput, QuintainError, Unavailable
from quintain.records.agent import Agent, Sampling
from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import Message, Reply, Stop, Turn
from quintain.records.text import require_clean
from quintain.records.trajectory import Action
from quintain.records.wording import clip
from quintain.trainers.rendering.call_parsing import TurnReader
from quintain.trainers.rendering.styles import to_chat
from quintain.worker.policies.request_ledger import AnswerCache, close_after, open_client

BROKEN_AFTER = 20
"""Number of consecutive unanswered requests after which the endpoint counts as broken."""

ANSWERS = Path("checkpoints") / "answers"
"""Folder below the job's folder. A resumed job inherits it."""

_STOPS = {"too_long": Stop.CONTEXT, "blocked": Stop.REFUSED}
_REACT_STOP = ("\nObservation:",)


@dataclass(eq=False)
class _Conversation:
    """State of one episode."""

    tools: tuple[dict[str, Any], ...]
    names: ToolNames
    sampling: Sampling
    key: str
    """Hash of the history and of the sampling settings."""
    messages: list[Message] = field(default_factory=list)

    def add(self, messages: Sequence[Message]) -> None:
        """Append messages and update the key."""
        self.messages += messages
        content = json.dumps([message.model_dump(mode="json") for message in messages], sort_keys=True)
        self.key = hashlib.sha256(f"{self.key}\n{content}".encode("utf-8", "replace")).hexdigest()


class RemotePolicy:
    """`records.protocols.Policy` for a model behind an endpoint. Its methods are called from one thread."""

    def __init__(
        self,
        agent: Agent,
        endpoint: Endpoint,
        sampling: Sampling,
        *,
        seed: int,
        folder: Path,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Read the API key and open the connections.

        Args:
            agent: The agent. Its template selects the format of turns.
            endpoint: Target of the requests.
            sampling: Sampling settings.
            seed: Separates the cached answers of different runs.
            folder: The job's folder, for the ledger and the cached answers.
            should_stop: Checked while requests are running.
        """
        self._react = agent.template == "react"
        self._endpoint, self._sampling, self._should_stop = endpoint, sampling, should_stop
        self.on_share: Callable[[float, int], None] | None = None
        self._client, ledger = open_client(endpoint, folder, seed=seed)
        close_after(self, self._client, ledger)
        self._answers = AnswerCache(folder / ANSWERS)
        self._about = [dict(identity(endpoint)), self._react, seed]
        self._conversations: dict[str, _Conversation] = {}
        self._lock = threading.Lock()
        self._has_answered = False
        self._silent = 0

    def act(self, turns: Sequence[Turn]) -> list[Reply]:
        """Answer the turns concurrently, within the limit of the endpoint's profile. Replies keep the order of the turns."""
        replies = {
            turn.episode_id: Reply(text="", stop=Stop.FAILED, error="the job was asked to stop") for turn in turns
        }
        for turn in turns:
            self._conversation(turn).add(turn.messages)
        at_once = self._endpoint.concurrency
        answers = map_in_parallel(turns, self._answer, at_once, self._should_stop, self._client.stop)
        n_tokens = 0
        for n_answered, (turn, reply) in enumerate(answers, 1):
            replies[turn.episode_id] = reply
            n_tokens += (reply.usage.output_tokens or 0) if reply.usage else 0
            if self.on_share is not None:
                self.on_share(n_answered / len(turns), n_tokens)
        return [replies[turn.episode_id] for turn in turns]

    def close(self, episode_id: str) -> None:
        """Drop an episode. Unknown ids are ignored."""
        self._conversations.pop(episode_id, None)

    def _conversation(self, turn: Turn) -> _Conversation:
        known = self._conversations.get(turn.episode_id)
        if known is None:
            sampling = self._sampling
            if turn.temperature is not None:
                sampling = sampling.model_copy(update={"temperature": turn.temperature})
            content = json.dumps([self._about, sampling.model_dump(mode="json"), turn.seed, turn.tools], sort_keys=True)
            known = _Conversation(turn.tools, ToolNames(turn.tools), sampling, content)
            self._conversations[turn.episode_id] = known
        return known

    def _answer(self, turn: Turn) -> Reply:
        """Return the reply to one turn. Runs in several threads, but only once at a time per episode."""
        conversation = self._conversations[turn.episode_id]
        try:
            found = self._completion(conversation)
        except QuintainError as error:
            return self._failure_reply(error)
        reply = self._read(found, conversation.names)
        conversation.add([_to_message(found, reply)])
        return reply

    def _completion(self, conversation: _Conversation) -> Completion:
        """Return the endpoint's answer, cached if possible."""
        if (known := self._answers.get(conversation.key)) is not None:
            try:
                return Completion.model_validate_json(known)
            except ValidationError:  # written by another version of this program
                pass
        options: dict[str, Any] = {
            **{name: getattr(conversation.sampling, name) for name in ("temperature", "top_p", "top_k", "min_p")},
            "max_tokens": conversation.sampling.max_new_tokens,
        }
        if self._react:
            chat = to_chat(conversation.messages, conversation.tools, style="react", has_system_role=True)
            messages = tuple(Message(role=entry["role"], content=entry["content"]) for entry in chat)
            ask = Ask(messages=messages, stop=_REACT_STOP, **options)
        else:
            messages = tuple(sendable(conversation.messages, conversation.names))
            ask = Ask(messages=messages, tools=conversation.names.schemas(conversation.tools), **options)
        found = self._client.complete(ask)
        with self._lock:
            self._has_answered, self._silent = True, 0
        found = _clean(found)
        self._answers.put(conversation.key, found.model_dump_json(), ())
        return found

    def _failure_reply(self, error: QuintainError) -> Reply:
        """Return the reply for a failed request."""
        with self._lock:
            is_own_fault = error.code == NOT_TAKEN and self._has_answered
            if error.code not in UNANSWERED and not is_own_fault:
                raise error
            if error.code not in {STOPPED, *_STOPS} and not is_own_fault:
                self._silent += 1
            if self._silent >= BROKEN_AFTER:
                raise Unavailable(
                    f"{error.message}; {BROKEN_AFTER} consecutive requests got no answer. Answers so far are kept: resume "
                    "the job when the endpoint answers again",
                    code=error.code,
                )
        return Reply(text="", stop=_STOPS.get(error.code, Stop.FAILED), error=error.message)

    def _read(self, found: Completion, names: ToolNames) -> Reply:
        usage = found.usage
        about: dict[str, Any] = {
            "stop": found.stop,
            "reasoning": found.thought,
            "model": found.model or self._endpoint.model,
            "usage": usage,
            "cost_usd": price(self._endpoint, usage.input_tokens, usage.output_tokens),
        }
        if self._react:
            parsed = TurnReader("react").read(found.text)
            return Reply(text=found.text, thought=parsed.thought, actions=parsed.actions, error=parsed.error, **about)
        actions = [action.model_copy(update={"tool": names.real(action.tool)}) for action in found.actions]
        if unreadable := [action for action in actions if action.args is None]:
            tool, raw_args = unreadable[0].tool, unreadable[0].raw_args or ""
            error = f"expected a JSON object as arguments of {clip(tool)!r}, got {clip(raw_args, 200)!r}"
            return Reply(text="\n".join(filter(None, [found.text, *map(_call_text, actions)])), error=error, **about)
        return Reply(text=found.text, thought=found.text.strip() or None, actions=tuple(actions), **about)


def _to_message(found: Completion, reply: Reply) -> AssistantMessage:
    """Return the answer as a message of its conversation: the parsed actions of ReAct text, else the text as written."""
    if reply.actions and not found.actions:
        return AssistantMessage(role="assistant", thought=reply.thought, actions=reply.actions)
    return AssistantMessage(role="assistant", content=found.text, actions=found.actions, kept=found.kept)


def _call_text(action: Action) -> str:
    """Return a call as text, whatever its arguments are."""
    return f'<tool_call>{{"name": {json.dumps(action.tool)}, "arguments": {action.raw_args}}}</tool_call>'


def _clean(found: Completion) -> Completion:
    """Replace what the store rejects: U+FFFD for lone surrogates, and raw text for invalid arguments."""
    actions = [
        action.model_copy(
            update={
                "tool": _unicode(action.tool),
                "args": action.args if _is_clean(action.args) else None,
                "raw_args": _unicode(action.raw_args),
                "call_id": _unicode(action.call_id),
            }
        )
        for action in found.actions
    ]
    texts = {name: _unicode(getattr(found, name)) for name in ("text", "thought", "model")}
    kept = found.kept if _is_clean(found.kept) else ()
    return found.model_copy(update={**texts, "actions": tuple(actions), "kept": kept})


def _is_clean(value: Any) -> bool:
    try:
        require_clean(value, "answer")
    except InvalidInput:
        return False
    return True


def _unicode(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "replace").decode()
