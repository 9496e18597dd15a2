"""What a probe episode shows of a chat template: how its turns end, and whether they can be read back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quintain.errors import InvalidInput
from quintain.records.seams import Message
from quintain.records.trajectory import Action
from quintain.trainers.rendering.turn_text import common

if TYPE_CHECKING:
    from quintain.trainers.rendering.renderer import Renderer

PROBE_TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "probe_tool",
            "description": "probe description",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
    },
)
_PROBE_CALL = Action(tool="probe_tool", args={"text": 'é "quoted"\n{}', "list": [1, 2.5, None], "flag": True})
_PROBE = (
    Message(role="system", content="probe system"),
    Message(role="user", content="probe question"),
    Message(role="assistant", thought="probe thought", actions=(_PROBE_CALL,)),
    Message(role="tool", content="probe observation"),
    Message(role="assistant", thought="probe answer"),
)


def probed(renderer: Renderer) -> Renderer:
    """The renderer with what a probe episode shows of its template.

    Raises:
        InvalidInput: something of the episode is lost, or a turn cannot be read back.
    """
    ends: list[str] = []
    appendable = True
    renderer = _with_surroundings(renderer)
    for place, mentions in ((2, ("probe system", "probe question", "probe_tool")), (4, ("probe observation",))):
        said = _PROBE[place]
        prompt, finished, turn = renderer.turn(
            renderer._chat(_PROBE[: place + 1], PROBE_TOOLS), renderer._schemas(PROBE_TOOLS)
        )
        if missing := [m for m in mentions if m not in prompt]:
            raise InvalidInput(f"the template leaves out {missing[0]!r}", code="template_unfit")
        appendable &= finished.startswith(prompt)
        found = renderer.spellings.end.search(turn)
        ends.append(found[0] if found else "")
        read = renderer.parse(turn[: found.start()] if found else turn)
        if (read.thought, [(a.tool, a.args) for a in read.actions]) != (
            said.thought,
            [(a.tool, a.args) for a in said.actions],
        ):
            raise InvalidInput(f"a turn does not read back: {turn!r}", code="template_unfit")
    end_ids = {renderer._encode(end)[-1] for end in ends if end}
    if renderer.tokenizer.eos_token_id is not None:
        end_ids.add(renderer.tokenizer.eos_token_id)
    warnings = renderer.warnings
    if not all(ends):
        warnings += ("the chat template writes no end token after a turn, so the model does not learn to stop",)
    return replace(
        renderer,
        end_turn=tuple(renderer._encode(ends[-1])),
        end_ids=frozenset(end_ids),
        appendable=appendable,
        warnings=warnings,
    )


def _with_surroundings(renderer: Renderer) -> Renderer:
    """The renderer with what its template writes around an agent's text and behind the last turn."""
    finished = renderer._text(_PROBE[:3], PROBE_TOOLS, prompt=False)
    kept = common(finished, renderer._text(_PROBE[:4], PROBE_TOOLS, prompt=True))
    end = renderer.spellings.end
    if end.search(finished[:kept]) and end.fullmatch(finished[kept:].strip()):
        renderer = replace(renderer, closes_with=finished[kept:].strip())
    chat = renderer._chat(_PROBE, PROBE_TOOLS)
    turn = renderer.turn(chat, renderer._schemas(PROBE_TOOLS))[2]
    text = chat[-1]["content"].strip()
    found = end.search(turn)
    before, here, after = (turn[: found.start()] if found else turn).partition(text)
    return replace(renderer, around=(before.strip(), after.strip())) if here else renderer
