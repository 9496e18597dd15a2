"""Trajectories to token ids and back, shared by training, previews and inference.

An episode's tokens are the concatenation of segments that are tokenised one by one:

    opening | agent turn | continuation | agent turn | ...

The opening is everything up to and including the first generation prompt; an agent turn is exactly what the agent wrote
and its end token; a continuation is the template's text between an end token and the next generation prompt. So a policy
with a KV cache and a trainer that reads the trajectory see the same ids.

Where a template rewrites earlier text, for example strips thinking from past turns, the chain breaks: the next turn starts
a new row with its whole prompt, in training as in inference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product, takewhile
from typing import Any, Literal, NamedTuple

import numpy as np

from quintain.datasets.messages import messages_of
from quintain.errors import InvalidInput
from quintain.records.protocols import Message
from quintain.records.trajectory import SampledTokens, Step, Trajectory
from quintain.trainers.data.streams import Ints, TokenRow
from quintain.trainers.rendering.call_parsing import ParsedTurn, TurnReader
from quintain.trainers.rendering.chat_template import ChatTemplate
from quintain.trainers.rendering.control_tokens import Spellings
from quintain.trainers.rendering.styles import Chat, StyleName, as_thinking, fallback_template, split_parallel_calls
from quintain.trainers.rendering.template_probe import PROBE_TOOLS, Probe, probe
from quintain.trainers.rendering.time_bound import time_bound

_MOST_PROBING_S = 60.0
"""Seconds for about 100 short renderings, which take less than one, except where a template's loops do not end."""
_PROBES: dict[tuple[str, bool, str], Probe] = {}
"""Conventions found in this process, without their tokenizer, by what they depend on."""


class Rendering(NamedTuple):
    """The token rows of a trajectory, and what was left out."""

    rows: list[TokenRow]
    truncated_turns: int
    """Agent turns that were cut off because their row would be too long."""
    dropped: str | None
    """Why there is no row: `nothing_supervised`, `too_long`, `zero_weight` or `template_refused`."""


class _Segment(NamedTuple):
    ids: Sequence[int]
    step: int = -1
    trained: bool = False
    logprobs: Sequence[float] | None = None


class _TurnPart(NamedTuple):
    """What a step contributes to an agent's turn."""

    message: Message
    step: int
    text: str


@dataclass(frozen=True)
class Renderer:
    """Renders episodes for one tokenizer; create it by `Renderer.of`."""

    writer: ChatTemplate
    """Renders messages as text."""
    reader: TurnReader
    """Parses text into thought and actions: the inverse of the writer, as the probe has verified."""
    fingerprint: str
    """Hash of tokenizer, template and style; sampled ids are valid under the same fingerprint only."""
    end_turn: tuple[int, ...]
    """Ids that the template writes at the end of an answer; empty if it writes none."""
    end_call: tuple[int, ...]
    """The same of a turn with calls."""
    end_ids: frozenset[int]
    """Ids that end an agent turn: the template's and the tokenizer's eos token."""
    appendable: bool
    """Whether a finished turn still starts with the generation prompt."""
    foreign: tuple[str, ...] = ()
    """Texts that open a part of the environment behind an agent's turn."""
    warnings: tuple[str, ...] = ()

    @staticmethod
    def of(tokenizer: Any, style: Literal["auto", "tools", "react"] = "auto") -> Renderer:
        """Create the renderer of a tokenizer by rendering and parsing a probe episode.

        Args:
            tokenizer: A transformers tokenizer; without a chat template it gets `fallback_template`.
            style: Style of turns; `auto` is `tools` where a rendered tool call parses back, else `react`.

        Raises:
            InvalidInput: The template does not support the style (`template_unfit`).
        """
        faults = []
        styles: tuple[StyleName, ...] = ("tools", "react") if style == "auto" else (style,)
        try:
            with time_bound(_MOST_PROBING_S):
                for candidate, has_system_role in product(styles, (True, False)):
                    try:
                        return _renderer(tokenizer, candidate, has_system_role)
                    except InvalidInput as error:
                        faults.append(error.message)
        except TimeoutError:
            faults.insert(0, f"a few short chats took longer than {_MOST_PROBING_S:.0f} s")
        remedy = "use template 'auto' or 'react', or another model" if style == "tools" else "use another model"
        raise InvalidInput(
            f"the model's chat template cannot write turns in style {style!r}: {faults[0]}; {remedy}",
            code="template_unfit",
        )

    @property
    def tokenizer(self) -> Any:
        """The tokenizer."""
        return self.writer.tokenizer

    @property
    def style(self) -> StyleName:
        """Native tool calls, or ReAct text."""
        return self.writer.style

    def messages(self, trajectory: Trajectory) -> list[tuple[Message, int]]:
        """Return the chat messages of a run, each with its step index; what an agent thought is thinking if the model thinks.

        In a rollout, a thought is the text before a turn's calls as the model wrote it, with its own tags if any.
        """
        messages = messages_of(trajectory)
        if not self.writer.thinking or trajectory.episode_key:
            return messages
        return [(as_thinking(message), index) for message, index in messages]

    def opening(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[int]:
        """Return the ids up to and including the generation prompt."""
        return self.writer.encode(self.writer.text(messages, tools, prompt=True))

    def continuation(
        self, history: Sequence[Message], new: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> list[int] | None:
        """Return the ids between the end token of the last turn in `history` and the next generation prompt.

        Returns:
            None where the template rewrites the history: encode `opening([*history, *new])` from scratch then.
        """
        if not self.appendable or history[-1].role != "assistant":
            return None
        turn = self.writer.turn(self.writer.chat(history, tools), self.writer.schemas(tools))
        full = self.writer.text([*history, *new], tools, prompt=True)
        if not (turn.can_be_appended_to and full.startswith(turn.finished)):
            return None
        return self.writer.encode(full[len(turn.finished) :], after=turn.finished)

    def closing(self, turn: Sequence[int], *, called: bool) -> list[int]:
        """Return the end token that a turn still needs, if its length limit has cut it off.

        An end token that opens what follows (`ChatTemplate.late_ends`) cannot be replaced by another one.
        """
        end = self.end_call if called else self.end_turn
        ends = end[-1:] if self.writer.late_ends[called] else self.end_ids
        return [] if turn and turn[-1] in ends else list(end)

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        """Parse an agent's text, without its end token, in the template's form; never raises."""
        return self.reader.read(text, tools)

    def turn_end(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> int | None:
        """Return where an agent's turn ends, though its text goes on: for models that do not write end tokens reliably.

        A turn ends behind its calls, if something else follows, and before a part of the environment.

        Returns:
            The position in the text; None: nowhere so far.
        """
        ends = [self.reader.end_of_calls(text, tools)] if tools else []
        for opening in self.foreign:
            found = text.find(opening)
            while found > 0 and text[found - 1] != "\n" and not self.writer.spellings.opens_with_control_token(opening):
                found = text.find(opening, found + 1)
            ends.append(found if found >= 0 else None)
        return min((end for end in ends if end is not None), default=None)

    def decode(self, token_ids: Sequence[int] | Ints) -> str:
        """Return the text of ids, control tokens included."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def written(self, turn: Sequence[int]) -> str:
        """Return the text of an agent turn, without its end token."""
        return self.decode(turn[:-1] if turn and turn[-1] in self.end_ids else turn)

    def render(self, trajectory: Trajectory, max_length: int, weight: float = 1.0) -> Rendering:
        """Render a trajectory as training rows of at most `max_length` tokens; masked and copied steps have no loss.

        A row ends with the last supervised turn that fits whole. Each supervised turn is in exactly one row. Turns with
        sampled ids of this fingerprint keep them, and their log-probs become `old_logprob`: NaN where unknown, None where a
        row has none. An end token added to a cut-off turn is not supervised: the agent did not write it.

        Raises:
            InvalidInput: The template omits an agent turn, or sampled tokens are incomplete.
        """
        if weight <= 0:
            return Rendering([], 0, "zero_weight")
        try:
            chains = list(self._chains(trajectory))
        except InvalidInput as error:
            if error.code != "template_refused":
                raise
            return Rendering([], 0, "template_refused")
        rows: list[TokenRow] = []
        n_turns = n_kept = 0
        for chain in chains:
            ends, length = [0], 0
            last = {segment.step: place for place, segment in enumerate(chain)}  # a step can be several turns
            for place, segment in enumerate(chain):
                length += len(segment.ids)
                is_whole = segment.trained and last[segment.step] == place
                n_turns += is_whole
                if is_whole and length <= max_length:
                    ends.append(place + 1)
                    n_kept += 1
            if ends[-1]:
                rows.append(_row(chain[: ends[-1]], weight))
        if not n_turns:
            return Rendering([], 0, "nothing_supervised")
        return Rendering(rows, n_turns - n_kept, None if rows else "too_long")

    def trains(self, step: Step) -> bool:
        """Whether an agent turn has loss: not if it is masked, copied, or has no sampled token."""
        sampled = self._sampled(step)
        return not step.is_masked and (sampled is None or bool(sampled.token_ids))

    def _sampled(self, step: Step) -> SampledTokens | None:
        """Return the step's sampled ids if they belong to this template; a turn that is split cannot use them."""
        is_own = step.sampled is not None and step.sampled.tokenizer == self.fingerprint
        return step.sampled if is_own and not (self.writer.one_call and len(step.actions) > 1) else None

    def _turns(
        self, entries: Chat, messages: Sequence[tuple[Message, int]], trajectory: Trajectory
    ) -> Iterator[list[_TurnPart]]:
        """Yield what the steps of each agent turn say: those of adjacent turns, where the template does not keep them apart.

        Raises:
            InvalidInput: A step before another one calls tools, says nothing, or has sampled ids (`template_refused`).
        """
        turn: list[_TurnPart] = []
        left = iter((message, index) for message, index in messages if message.role == "assistant")
        for entry in entries:
            if turn and (self.writer.adjacent_turns or entry["role"] != "assistant"):
                yield turn
                turn = []
            if entry["role"] == "assistant":
                part = _TurnPart(*next(left), entry["content"].strip())
                for before in turn[-1:]:
                    if before.message.actions or not before.text or self._sampled(trajectory.steps[before.step]):
                        raise _not_apart(part.step)
                turn.append(part)
        if turn:
            yield turn

    def _chains(self, trajectory: Trajectory) -> Iterator[list[_Segment]]:
        """Yield the segments of the episode; a new list wherever the template rewrites earlier text.

        A turn with nothing before it answers nothing: it is a part of the next turn's prompt, without loss. A template that
        demands the user first does not show it.
        """
        writer, messages = self.writer, self.messages(trajectory)
        if writer.one_call:
            messages = split_parallel_calls(messages)
        schemas = writer.schemas(trajectory.tools)
        chat = writer.entries([m for m, _ in messages], trajectory.tools)
        greetings = len(list(takewhile(lambda entry: entry["role"] == "assistant", chat)))
        if 0 < greetings < len(chat) and not writer.accepts(chat[: greetings + 1], schemas):
            messages = messages[greetings:]
            chat = writer.entries([m for m, _ in messages], trajectory.tools)
        turns = list(self._turns(chat, messages, trajectory))
        chat = writer.joined(chat)
        places = [place for place, entry in enumerate(chat) if entry["role"] == "assistant"]
        chain: list[_Segment] = []
        written, closing = "", list[int]()
        for place, (*earlier, (message, index, _)) in zip(places, turns, strict=True):
            if not place:
                continue
            step = trajectory.steps[index]
            turn_text = writer.turn(chat[: place + 1], schemas)
            if chain and written and turn_text.prompt.startswith(written):
                chain.append(_Segment(closing + writer.encode(turn_text.prompt[len(written) :], after=written)))
            else:
                if chain:
                    yield chain
                chain = [_Segment(writer.encode(turn_text.prompt))]
            prompt, text = turn_text.prompt, turn_text.text
            for part in earlier:
                if (end := text.find(part.text) + len(part.text)) < len(part.text):
                    raise _not_apart(index)
                chain.append(
                    _Segment(
                        writer.encode(text[:end], after=prompt), part.step, self.trains(trajectory.steps[part.step])
                    )
                )
                prompt, text = prompt + text[:end], text[end:]
            if sampled := self._sampled(step):
                turn, logprobs = _checked(sampled, index)
            else:
                turn, logprobs = writer.encode(text, after=prompt), None
                if not self.written(turn).strip() and (message.actions or chat[place]["content"].strip()):
                    raise InvalidInput(
                        f"expected the chat template to write the agent's turn of step {index}, got nothing; use template "
                        "'react' or another model",
                        code="empty_turn",
                    )
            chain.append(_Segment(turn, index, self.trains(step), logprobs))
            written = turn_text.finished if self.appendable and turn_text.can_be_appended_to else ""
            closing = self.closing(turn, called=bool(message.actions))
        yield chain


def _not_apart(step: int) -> InvalidInput:
    return InvalidInput(
        f"expected something between the agent's turns, got step {step} right behind another: the chat template does not keep them "
        "apart; record them as one step, or use another model",
        code="template_refused",
    )


def _checked(sampled: SampledTokens, index: int) -> tuple[Sequence[int], Sequence[float] | None]:
    """Return sampled ids and their log-probs."""
    ids, logprobs = sampled.token_ids, sampled.logprobs
    n_known = len(ids) if logprobs is None else len(logprobs)
    if n_known != len(ids) or not 0 <= min(ids, default=0) <= max(ids, default=0) < 2**31:
        raise InvalidInput(
            f"step {index}: expected sampled token ids from 0 to 2147483647 with one log-prob each, got {len(ids)} ids from "
            f"{min(ids, default=0)} to {max(ids, default=0)} and {n_known} log-probs; record the sampled tokens, or set "
            "`sampled` to null",
            code="bad_sampled_tokens",
        )
    return ids, logprobs


def _row(chain: Sequence[_Segment], weight: float) -> TokenRow:
    lengths = [len(segment.ids) for segment in chain]
    supervised = np.repeat([segment.trained for segment in chain], lengths)
    supervised[:1] = False  # nothing predicts the first token, where a template opens with the agent's turn
    logprobs = [value for segment in chain for value in segment.logprobs or [np.nan] * len(segment.ids)]
    old_logprob = np.where(supervised, logprobs, np.nan).astype(np.float32)
    return TokenRow(
        token_ids=np.asarray([token for segment in chain for token in segment.ids], np.int32),
        supervised=supervised,
        step_index=np.repeat(np.asarray([segment.step for segment in chain], np.int32), lengths),
        weight=np.where(supervised, weight, 0.0).astype(np.float32),
        old_logprob=None if np.isnan(old_logprob).all() else old_logprob,
    )


def _renderer(tokenizer: Any, style: StyleName, has_system_role: bool) -> Renderer:
    has_template = bool(getattr(tokenizer, "chat_template", None))
    warnings: tuple[str, ...] = ()
    if has_template:
        without_tools = tokenizer.get_chat_template(tools=None)
        source = tokenizer.get_chat_template(tools=list(PROBE_TOOLS)) if style == "tools" else without_tools
    else:
        source = without_tools = fallback_template(tokenizer)
        warnings = ("the tokenizer has no chat template; turns are written with the template 'quintain-fallback'",)
    fingerprint = _fingerprint(tokenizer, source, style)
    key = (fingerprint, has_system_role, f"{tokenizer.special_tokens_map}{without_tools}")
    if key not in _PROBES:  # about 25 renderings: each stage of a recipe opens the same tokenizer anew
        template = ChatTemplate(tokenizer, style, source, has_system_role, Spellings.of(tokenizer, source))
        found = probe(replace(template, without_tools="" if without_tools == source else without_tools))
        _PROBES[key] = found._replace(template=replace(found.template, tokenizer=None))
    found = _PROBES[key]
    return Renderer(
        writer=replace(found.template, tokenizer=tokenizer),
        reader=found.reader,
        fingerprint=fingerprint,
        end_turn=found.end_turn,
        end_call=found.end_call,
        end_ids=found.end_ids,
        appendable=found.appendable,
        foreign=found.foreign,
        warnings=warnings + found.warnings,
    )


def _fingerprint(tokenizer: Any, template: str, style: StyleName) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        state = json.dumps(sorted(tokenizer.get_vocab().items()))
    else:
        state = backend.to_str()
        state = state[state.index('"added_tokens"') :]  # without truncation and padding, which vary between calls
    content = "\0".join((state, template, style, str(tokenizer.eos_token)))
    return f"tok-{hashlib.sha256(content.encode('utf-8')).hexdigest()[:16]}"
