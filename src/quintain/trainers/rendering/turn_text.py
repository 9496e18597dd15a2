"""Where an agent's turn begins in rendered text: pure functions of strings.

`prompt` is the chat up to a turn with the generation prompt; `finished` the chat with the turn, up to its end token.
"""

from __future__ import annotations

import re
from itertools import takewhile

from quintain.errors import InvalidInput

_OPENING_TAG = re.compile(r"\A<think>\n?")


def turn_of(prompt: str, finished: str, *, before: str, said: str) -> str:
    """What the agent wrote, with its end token.

    - As a rule it is what comes after the prompt.
    - A template can show a generation prompt that a finished turn does not repeat (an opened `<think>`): then it is what
      comes after the text that both share.
    - A template can write earlier turns otherwise once there is a later one (without their thinking): then it is what
      comes after the last header.
    - Thinking that the template leaves out of the turn is put back where the prompt opens it: else the model would learn to
      answer while it thinks.

    Args:
        prompt: See the module.
        finished: See the module.
        before: The chat up to the turn without the generation prompt; not read where `finished` begins with `prompt`.
        said: The text that the agent's message holds.

    Raises:
        InvalidInput: the turn cannot be told apart from what stands before.
    """
    start = len(prompt)
    if not finished.startswith(prompt):
        start = common(prompt, finished)
        if prompt.startswith(before) and start < len(before):
            start = _after_header(prompt[len(before) :], finished)
        elif "</think>" in prompt[start:] and "</think>" in finished[start:]:
            # The prompt closes the thinking that it opens; the turn has thinking of its own.
            start = max(finished.rfind("<think>", 0, start), len(before))
    turn = finished[start:]
    if "</think>" not in said or "</think>" in turn or not prompt.rstrip().endswith("<think>"):
        return turn
    thinking = said[max(said.find("<think>"), 0) : said.rindex("</think>") + len("</think>")]
    return put_back(thinking, turn, prompt)


def put_back(said: str, turn: str, prompt: str, *, apart: bool = False) -> str:
    """The turn with words before it that the template has left out; thinking is not opened again where the prompt opens it.

    Args:
        said: The words.
        turn: What the template writes without them.
        prompt: What stands before.
        apart: Do the words stand on lines of their own? A control token needs no line break before it.
    """
    if prompt.rstrip().endswith("<think>"):
        said = _OPENING_TAG.sub("", said)
    return f"{said}\n{turn}" if said and apart else said + turn


def common(left: str, right: str, *, tags: bool = True) -> int:
    """How many characters the texts share from the start, without a tag that parts within.

    `<think>` and `<tool_call>` share two characters, which belong to neither prompt nor turn alone. Without `tags` they count.
    """
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))
    cut = re.search(r"<[^<>]*\Z", left[:shared]) if tags else None
    return cut.start() if cut else shared


def _after_header(header: str, finished: str) -> int:
    """Where the last turn begins: behind its header, without a tag at the header's end that is not repeated.

    Raises:
        InvalidInput: the finished text has no such header.
    """
    shown = re.sub(r"<[^<>]*>\s*\Z", "", header)
    ends = [finished.rindex(h) + len(h) for h in (header, shown) if h and h in finished]
    if not ends:
        raise InvalidInput(
            f"the chat template rewrites earlier turns and shows no header {header!r} before the last one, so what the "
            "agent wrote cannot be told apart",
            code="template_refused",
        )
    return max(ends)
