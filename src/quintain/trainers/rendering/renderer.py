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
from jinja2.exceptions import TemplateError

from quintain.errors import InvalidInput
from quintain.formats.messages import messages_of
from quintain.records.seams import Message
from quintain.records.trajectory import SampledTokens, Step, Trajectory
from quintain.trainers.rendering.control_tokens import Spellings, encode
from quintain.trainers.rendering.styles import FALLBACK_TEMPLATE, Chat, Parsed, StyleName, parse, to_chat
from quintain.trainers.rendering.template_probe import PROBE_TOOLS, probed
from quintain.trainers.rendering.turn_text import turn_of
from quintain.trainers.streams import Ints, TokenRow

_FIXED_DATE = "26 Jul 2024"
"""The date that Llama templates show when none is given; without it the prompt would change from day to day."""


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

    tokenizer: Any
    style: StyleName
    template: str
    fingerprint: str
    """Hash of tokenizer, template and style: sampled ids are valid under an equal fingerprint only."""
    has_system_role: bool
    spellings: Spellings
    end_turn: tuple[int, ...] = ()
    """What the template writes at the end of a turn; empty where it writes nothing of the kind."""
    end_ids: frozenset[int] = frozenset()
    """Ids that end an agent turn: those that the template writes, and the tokenizer's eos token."""
    appendable: bool = True
    """Does a finished turn still begin with the generation prompt?"""
    around: tuple[str, str] = ("", "")
    """What the template makes an agent write before and after its text, as the channel of gpt-oss; stripped."""
    closes_with: str = ""
    """What the template writes behind the last end token where the conversation ends, as Phi-3 does; else empty."""
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
                    return probed(_renderer(tokenizer, candidate, has_system_role))
                except InvalidInput as error:
                    faults.append(error.message)
        remedy = "use template 'auto' or 'react', or another model" if style == "tools" else "use another model"
        raise InvalidInput(
            f"the model's chat template cannot write turns in style {style!r}: {faults[0]}; {remedy}",
            code="template_unfit",
        )

    def opening(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] = ()) -> list[int]:
        """Ids of everything up to and including the generation prompt."""
        return self._encode(self._text(messages, tools, prompt=True))

    def continuation(
        self, history: Sequence[Message], new: Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> list[int] | None:
        """Ids between the end token of the last turn in `history` and the next generation prompt.

        Returns:
            None where the template rewrites what stands before: encode `opening([*history, *new])` from scratch then.
        """
        if not self.appendable or history[-1].role != "assistant":
            return None
        prompt, written, turn = self.turn(self._chat(history, tools), self._schemas(tools))
        full = self._text([*history, *new], tools, prompt=True)
        return self._encode(full[len(written) :]) if written == prompt + turn and full.startswith(written) else None

    def closing(self, turn: Sequence[int]) -> list[int]:
        """The end token that a turn still needs before the continuation, when its length limit cut it off."""
        return [] if turn and turn[-1] in self.end_ids else list(self.end_turn)

    def parse(self, text: str) -> Parsed:
        """Read what an agent wrote, without its end token; never raises."""
        before, after = self.around
        return parse(text.strip().removeprefix(before).removesuffix(after), self.style)

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
            for place, segment in enumerate(chain):
                length += len(segment.ids)
                n_turns += segment.trained
                if segment.trained and length <= max_length:
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
        return step.sampled if step.sampled and step.sampled.tokenizer == self.fingerprint else None

    def _chains(self, trajectory: Trajectory) -> Iterator[list[_Segment]]:
        """Segments of the episode; a new list wherever the template breaks with the text before."""
        messages = messages_of(trajectory)
        chat, schemas = self._chat([m for m, _ in messages], trajectory.tools), self._schemas(trajectory.tools)
        places = [place for place, entry in enumerate(chat) if entry["role"] == "assistant"]
        said = [(message, index) for message, index in messages if message.role == "assistant"]
        chain: list[_Segment] = []
        written, closing = "", list[int]()
        for place, (message, index) in zip(places, said, strict=True):
            step = trajectory.steps[index]
            prompt, finished, text = self.turn(chat[: place + 1], schemas)
            if chain and written and prompt.startswith(written):
                chain.append(_Segment(closing + self._encode(prompt[len(written) :])))
            else:
                if chain:
                    yield chain
                chain = [_Segment(self._encode(prompt))]
            if sampled := self._sampled(step):
                turn, logprobs = _checked(sampled, index)
            else:
                turn, logprobs = self._encode(text), None
                if not self.written(turn).strip() and (message.actions or chat[place]["content"].strip()):
                    raise InvalidInput(
                        f"the chat template writes nothing for the agent's turn in step {index}, so nothing could be "
                        "learned from it; use template 'react' or another model",
                        code="empty_turn",
                    )
            chain.append(_Segment(turn, index, self.trains(step), logprobs))
            written = finished if self.appendable and finished == prompt + text else ""
            closing = self.closing(turn)
        yield chain

    def turn(self, chat: Chat, schemas: list[dict[str, Any]] | None) -> tuple[str, str, str]:
        """How the template writes the turn of the agent that a chat ends with, as text.

        Returns:
            What stands before it, generation prompt included; the whole chat up to the turn's end token; the turn with its
            end token. Where the whole is not the first and the last together, nothing can be appended to it.

        Raises:
            InvalidInput: the template refuses the chat, or rewrites it past recognition.
        """
        prompt = self._written(chat[:-1], schemas, prompt=True)
        finished = self._finished(self._written(chat, schemas, prompt=False))
        before = "" if finished.startswith(prompt) else self._written(chat[:-1], schemas, prompt=False)
        return prompt, finished, turn_of(prompt, finished, before=before, said=chat[-1]["content"])

    def _text(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, prompt: bool) -> str:
        return self._written(self._chat(messages, tools), self._schemas(tools), prompt=prompt)

    def _chat(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> Chat:
        """Messages for the template, with every control token defused that somebody spelled in one."""
        chat = to_chat(messages, tools, style=self.style, has_system_role=self.has_system_role)
        return [self.spellings.defuse(entry, own=entry["role"] == "assistant") for entry in chat]

    def _schemas(self, tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
        return self.spellings.defuse(list(tools), own=False) if tools and self.style == "tools" else None

    def _written(self, chat: Chat, schemas: list[dict[str, Any]] | None, *, prompt: bool) -> str:
        try:
            return self.tokenizer.apply_chat_template(
                chat,
                tools=schemas,
                chat_template=self.template,
                add_generation_prompt=prompt,
                tokenize=False,
                date_string=_FIXED_DATE,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"the model's chat template refused the messages: {error}; their roles may not alternate as it wants",
                code="template_refused",
            ) from None

    def _finished(self, text: str) -> str:
        """Rendered text up to and including its last end token."""
        if self.closes_with:
            text = text.rstrip().removesuffix(self.closes_with)
        found = self.spellings.end.search(text)
        return text[: found.end()] if found else text.rstrip()

    def _encode(self, text: str) -> list[int]:
        return encode(self.tokenizer, text)


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
    probe_tools = list(PROBE_TOOLS) if style == "tools" else None
    template = tokenizer.get_chat_template(tools=probe_tools) if has_template else FALLBACK_TEMPLATE
    return Renderer(
        tokenizer=tokenizer,
        style=style,
        template=template,
        fingerprint=_fingerprint(tokenizer, template, style),
        has_system_role=has_system_role,
        spellings=Spellings.of(tokenizer, template),
        warnings=()
        if has_template
        else ("the tokenizer has no chat template; turns are written with the template 'quintain-fallback'",),
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
