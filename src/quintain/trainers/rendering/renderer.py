"""Trajectories to token ids and back, one way for training, preview and inference.

An episode's tokens are the concatenation of segments that are tokenised one by one:

    opening | agent turn | continuation | agent turn | ...

The opening is everything up to and including the first generation prompt; an agent turn is exactly what the agent wrote
and its end token; a continuation is what the chat template puts between an end token and the next generation prompt.
So a policy that keeps its KV cache and a trainer that reads the trajectory see the same ids.

Where a template rewrites earlier text (say, strips thinking from past turns), the chain breaks: the next turn starts a
row of its own with its whole prompt, in training as in inference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import numpy as np

from quintain.datasets.messages import messages_of
from quintain.errors import InvalidInput
from quintain.records.seams import Message
from quintain.records.trajectory import SampledTokens, Step, Trajectory
from quintain.trainers.data.streams import Ints, TokenRow
from quintain.trainers.rendering.calls import ParsedTurn, TurnReader
from quintain.trainers.rendering.chat_template import ChatTemplate
from quintain.trainers.rendering.control_tokens import Spellings
from quintain.trainers.rendering.styles import FALLBACK_TEMPLATE, StyleName, one_call_each
from quintain.trainers.rendering.template_probe import PROBE_TOOLS, probe


class Rendering(NamedTuple):
    """A trajectory as rows, and what did not get in."""

    rows: list[TokenRow]
    truncated_turns: int
    """Agent turns that fell off because their row would be longer than allowed."""
    dropped: str | None
    """Why there is no row at all: `nothing_supervised`, `too_long`, `zero_weight` or `template_refused`."""


class _Segment(NamedTuple):
    ids: Sequence[int]
    step: int = -1
    trained: bool = False
    logprobs: Sequence[float] | None = None


@dataclass(frozen=True)
class Renderer:
    """How one tokenizer writes episodes; make it by `Renderer.of`."""

    writer: ChatTemplate
    """Makes text of messages."""
    reader: TurnReader
    """Makes thought and actions of text: the inverse of the writer, as the probe has shown."""
    fingerprint: str
    """Hash of tokenizer, template and style: sampled ids are valid under an equal fingerprint only."""
    end_turn: tuple[int, ...]
    """What the template writes at the end of a turn; empty where it writes nothing of the kind."""
    end_ids: frozenset[int]
    """Ids that end an agent turn: those that the template writes, and the tokenizer's eos token."""
    appendable: bool
    """Does a finished turn still begin with the generation prompt?"""
    warnings: tuple[str, ...] = ()

    @staticmethod
    def of(tokenizer: Any, style: Literal["auto", "tools", "react"] = "auto") -> Renderer:
        """Find out how this tokenizer's template writes turns, by a probe episode.

        Args:
            tokenizer: A transformers tokenizer; without a chat template it gets `FALLBACK_TEMPLATE`.
            style: How turns are written; `auto` is `tools` where a rendered tool call can be read back, else `react`.

        Raises:
            InvalidInput: the style that was asked for does not work with the template.
        """
        faults = []
        styles: tuple[StyleName, ...] = ("tools", "react") if style == "auto" else (style,)
        for candidate in styles:
            for has_system_role in (True, False):
                try:
                    return _renderer(tokenizer, candidate, has_system_role)
                except InvalidInput as error:
                    faults.append(error.message)
        remedy = "use template 'auto' or 'react', or another model" if style == "tools" else "use another model"
        raise InvalidInput(
            f"the model's chat template cannot write turns in style {style!r}: {faults[0]}; {remedy}",
            code="template_unfit",
        )

    @property
    def tokenizer(self) -> Any:
        """The tokenizer whose template this is."""
        return self.writer.tokenizer

    @property
    def template(self) -> str:
        """The chat template's source."""
        return self.writer.source

    @property
    def style(self) -> StyleName:
        """Native tool calls, or ReAct text."""
        return self.writer.style

    @property
    def has_system_role(self) -> bool:
        """Does the template know a system role?"""
        return self.writer.has_system_role

    @property
    def spellings(self) -> Spellings:
        """The control tokens as they are spelled in text."""
        return self.writer.spellings

    def opening(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[int]:
        """Ids of everything up to and including the generation prompt."""
        return self.writer.encode(self.writer.text(messages, tools, prompt=True))

    def continuation(
        self, history: Sequence[Message], new: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> list[int] | None:
        """Ids between the end token of the last turn in `history` and the next generation prompt.

        Returns:
            None where the template rewrites what stands before: encode `opening([*history, *new])` from scratch then.
        """
        if not self.appendable or history[-1].role != "assistant":
            return None
        turn = self.writer.turn(self.writer.chat(history, tools), self.writer.schemas(tools))
        full = self.writer.text([*history, *new], tools, prompt=True)
        if not (turn.can_be_appended_to and full.startswith(turn.finished)):
            return None
        return self.writer.encode(full[len(turn.finished) :])

    def closing(self, turn: Sequence[int]) -> list[int]:
        """The end token that a turn still needs before the continuation, when its length limit cut it off."""
        return [] if turn and turn[-1] in self.end_ids else list(self.end_turn)

    def parse(self, text: str, tools: Sequence[dict[str, Any]] = ()) -> ParsedTurn:
        """Read what an agent wrote, without its end token, as the template would have written it; never raises.

        Args:
            text: The turn.
            tools: Their schemas tell the types of values that some templates write without.
        """
        return self.reader.read(text, tools)

    def decode(self, token_ids: Sequence[int] | Ints) -> str:
        """The text of ids, control tokens spelled out."""
        return self.tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def written(self, turn: Sequence[int]) -> str:
        """The text of an agent turn, without its end token."""
        return self.decode(turn[:-1] if turn and turn[-1] in self.end_ids else turn)

    def rows(self, trajectory: Trajectory, max_length: int, weight: float = 1.0) -> list[TokenRow]:
        """The training rows of a trajectory; see `render` for what did not get in."""
        return self.render(trajectory, max_length, weight).rows

    def render(self, trajectory: Trajectory, max_length: int, weight: float = 1.0) -> Rendering:
        """A trajectory as training rows of at most `max_length` tokens.

        A row ends with the last supervised turn that fits whole. Every supervised turn stands in exactly one row. Turns
        with sampled ids of this fingerprint keep them, and their log-probs become `old_logprob`: NaN where unknown, None
        where the row has none. An end token that a cut-off turn still needed is not supervised: the agent did not write it.

        Args:
            trajectory: What was asked and done; steps with `train=False` and copied ones stay out of the loss.
            max_length: Tokens of a row.
            weight: Weight of the trajectory in the loss.

        Raises:
            InvalidInput: the template leaves out what the agent wrote, or a turn's sampled tokens are not whole.
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
        """Is this agent turn in the loss? Not where it is masked or copied, or nothing was sampled for it."""
        sampled = self._sampled(step)
        return step.train is not False and not step.copied_context and (sampled is None or bool(sampled.token_ids))

    def _sampled(self, step: Step) -> SampledTokens | None:
        """The step's own ids, if they are this template's; of a turn that becomes several they cannot be."""
        is_own = step.sampled is not None and step.sampled.tokenizer == self.fingerprint
        return step.sampled if is_own and not (self.writer.one_call and len(step.actions) > 1) else None

    def _chains(self, trajectory: Trajectory) -> Iterator[list[_Segment]]:
        """Segments of the episode; a new list wherever the template breaks with the text before."""
        writer, messages = self.writer, messages_of(trajectory)
        if writer.one_call:
            messages = one_call_each(messages)
        chat = writer.chat([m for m, _ in messages], trajectory.tools)
        schemas = writer.schemas(trajectory.tools)
        places = [place for place, entry in enumerate(chat) if entry["role"] == "assistant"]
        said = [(message, index) for message, index in messages if message.role == "assistant"]
        chain: list[_Segment] = []
        written, closing = "", list[int]()
        for place, (message, index) in zip(places, said, strict=True):
            step = trajectory.steps[index]
            shown = writer.turn(chat[: place + 1], schemas)
            if chain and written and shown.prompt.startswith(written):
                chain.append(_Segment(closing + writer.encode(shown.prompt[len(written) :])))
            else:
                if chain:
                    yield chain
                chain = [_Segment(writer.encode(shown.prompt))]
            if sampled := self._sampled(step):
                turn, logprobs = _checked(sampled, index)
            else:
                turn, logprobs = writer.encode(shown.text), None
                if not self.written(turn).strip() and (message.actions or chat[place]["content"].strip()):
                    raise InvalidInput(
                        f"the chat template writes nothing for the agent's turn in step {index}, so nothing could be "
                        "learned from it; use template 'react' or another model",
                        code="empty_turn",
                    )
            chain.append(_Segment(turn, index, self.trains(step), logprobs))
            written = shown.finished if self.appendable and shown.can_be_appended_to else ""
            closing = self.closing(turn)
        yield chain


def _checked(sampled: SampledTokens, index: int) -> tuple[Sequence[int], Sequence[float] | None]:
    """Sampled ids and their log-probs.

    Raises:
        InvalidInput: an id cannot be one, or not every id has its log-prob.
    """
    ids, logprobs = sampled.token_ids, sampled.logprobs
    n_known = len(ids) if logprobs is None else len(logprobs)
    if n_known != len(ids) or not 0 <= min(ids, default=0) <= max(ids, default=0) < 2**31:
        raise InvalidInput(
            f"step {index} has {len(ids)} sampled token ids, the least {min(ids, default=0)}, the greatest "
            f"{max(ids, default=0)}, and {n_known} log-probs; ids must be from 0 to 2147483647 and each have its "
            "log-prob; record what the policy sampled, or leave `sampled` null",
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


def shared_prefix(*sequences: Sequence[object]) -> int:
    """How many items the sequences share from the start."""
    return sum(1 for _ in takewhile(lambda items: len(set(items)) == 1, zip(*sequences, strict=False)))


def _renderer(tokenizer: Any, style: StyleName, has_system_role: bool) -> Renderer:
    has_template = bool(getattr(tokenizer, "chat_template", None))
    source = FALLBACK_TEMPLATE
    warnings: tuple[str, ...] = (
        "the tokenizer has no chat template; turns are written with the template 'quintain-fallback'",
    )
    if has_template:
        source, warnings = tokenizer.get_chat_template(tools=list(PROBE_TOOLS) if style == "tools" else None), ()
    shown = probe(ChatTemplate(tokenizer, style, source, has_system_role, Spellings.of(tokenizer, source)))
    return Renderer(
        writer=shown.template,
        reader=shown.reader,
        fingerprint=_fingerprint(tokenizer, source, style),
        end_turn=shown.end_turn,
        end_ids=shown.end_ids,
        appendable=shown.appendable,
        warnings=warnings + shown.warnings,
    )


def _fingerprint(tokenizer: Any, template: str, style: StyleName) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        state = json.dumps(sorted(tokenizer.get_vocab().items()))
    else:
        state = backend.to_str()
        state = state[state.index('"added_tokens"') :]  # truncation and padding stand before; they vary with the calls
    content = "\0".join((state, template, style, str(tokenizer.eos_token)))
    return f"tok-{hashlib.sha256(content.encode('utf-8')).hexdigest()[:16]}"
