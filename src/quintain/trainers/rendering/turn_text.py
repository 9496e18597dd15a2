"""Separate an agent's turn from the rendered text before it: pure functions of strings.

`prompt` is the chat up to a turn with the generation prompt; `finished` the chat with the turn, up to its end token.
"""

from __future__ import annotations

import re
from itertools import takewhile

from quintain.errors import InvalidInput

_OPENING_TAG = re.compile(r"\A<think>\n?")


def turn_of(prompt: str, finished: str, *, before: str, content: str) -> str:
    """Return the agent's text, with its end token.

    - Usually it is the text after the prompt.
    - If a finished turn does not repeat the generation prompt (an opened `<think>`), it is the text after the common prefix.
    - If the template rewrites earlier turns when a later one follows (without their thinking), it is the text after the last
      header.
    - Thinking that the template omits is restored where the prompt opens it. Otherwise the model would learn to answer inside
      its thinking.

    Args:
        prompt: See the module.
        finished: See the module.
        before: The chat up to the turn without the generation prompt; unused where `finished` starts with `prompt`.
        content: The text of the agent's message.

    Raises:
        InvalidInput: The turn cannot be separated from the text before it.
    """
    start = len(prompt)
    if not finished.startswith(prompt):
        start = common(prompt, finished)
        if prompt.startswith(before) and start < len(before):
            start = _after_header(prompt[len(before) :], finished)
        elif "</think>" in prompt[start:] and "</think>" in finished[start:]:
            # The prompt opens and closes an empty thinking; the turn has its own.
            start = max(finished.rfind("<think>", 0, start), len(before))
    turn = finished[start:]
    if "</think>" not in content or "</think>" in turn or not prompt.rstrip().endswith("<think>"):
        return turn
    thinking = content[max(content.find("<think>"), 0) : content.rindex("</think>") + len("</think>")]
    return put_back(thinking, turn, prompt)


def put_back(omitted: str, turn: str, prompt: str, *, apart: bool = False) -> str:
    """Return the turn with omitted text before it; an opening `<think>` is dropped where the prompt has one.

    Args:
        omitted: Text that the template has left out.
        turn: The turn as the template writes it.
        prompt: The text before the turn.
        apart: Whether the text gets lines of its own. A control token needs no line break before it.
    """
    if prompt.rstrip().endswith("<think>"):
        omitted = _OPENING_TAG.sub("", omitted)
    return f"{omitted}\n{turn}" if omitted and apart else omitted + turn


def common(left: str, right: str, *, tags: bool = True) -> int:
    """Return the length of the common prefix of two texts, without a tag in which they differ.

    `<think>` and `<tool_call>` share two characters, which belong to neither prompt nor turn alone. Without `tags` they count.
    """
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
    cut = re.search(r"<[^<>]*\Z", left[:shared]) if tags else None
    return cut.start() if cut else shared


def _after_header(header: str, finished: str) -> int:
    """Return the start of the last turn: behind its header, without a final tag of the header that is not repeated."""
    untagged = re.sub(r"<[^<>]*>\s*\Z", "", header)
    ends = [finished.rindex(h) + len(h) for h in (header, untagged) if h and h in finished]
    if not ends:
        raise InvalidInput(
            f"expected the header {header!r} before the last turn of a chat template that rewrites earlier turns, got none: "
            "the agent's text cannot be located; register the agent with template='react' (register_agent), or use another model",
            code="template_refused",
        )
    return max(ends)
