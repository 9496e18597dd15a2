"""Why an episode was not solved, by rules that read its trajectory; the first rule that holds names it.

1. `endpoint_error`, `environment_error`: the endpoint behind the agent had no answer, or the environment failed, so nothing is
   said of the agent.
2. `loop`: three turns one after another made the same calls and got the same answers.
3. The fault of the last turn, or else the fault of more than half of the turns, where a turn's fault is the first of
   `format` (it could not be read, or the arguments of a call are not JSON), `wrong_tool` (it calls a tool that is not
   offered) and `bad_arguments` (an offered tool answers with an error).
4. `wrong_tool`: the task names its `target_tools`, the agent called tools, and none of those.
5. `gave_up`: the last turn calls no tool though tools are offered, and says nothing, says that it cannot, or was the last
   one before the episode was cut off.
6. `timeout`: a limit of turns, tokens or time cut the episode off.
7. `wrong_answer`: the environment judged what the agent did, and it was not right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from quintain.records.evaluation import FailureKind
from quintain.records.trajectory import Actor, OutcomeStatus, Step, Trajectory, text_of
from quintain.scoring.rules.references import target_tools

LOOP = 3
"""Equal turns one after another that are a loop."""

UNREADABLE = "Your turn could not be read:"
"""How an episode answers a turn that is no action; nothing reaches the environment then."""

NO_ANSWER = "endpoint_error"
"""Exit status of an episode whose agent got no answer from its endpoint."""

_CANNOT = re.compile(
    r"\b(?:i (?:can ?not|can['\u2019]t|am unable|was unable|give up|do not know|don['\u2019]t know)|unable to|giving up)\b",
    re.IGNORECASE,
)


def failure_of(run: Trajectory) -> FailureKind | None:
    """Why an episode was not solved; None where it was, or where nobody knows."""
    status = run.outcome.status
    if status is OutcomeStatus.ERROR:
        return "endpoint_error" if run.outcome.exit_status == NO_ANSWER else "environment_error"
    if status in {OutcomeStatus.SUCCESS, OutcomeStatus.UNKNOWN}:
        return None
    turns = [step for step in run.agent_steps if step.extra.get("acted") is not False]
    if _loops(turns):
        return "loop"
    offered = set(map(_name, run.tools))
    faults = [_fault(step, offered, _told(run.steps, step)) for step in turns]
    if faults and faults[-1]:
        return faults[-1]
    (fault, n), *_ = Counter(faults).most_common(1) or [(None, 0)]
    if fault and 2 * n > len(faults):
        return fault
    called = {action.tool for step in turns for action in step.actions}
    wanted = target_tools(run.task.metadata)
    if called and wanted and not called & set(wanted):
        return "wrong_tool"
    cut_off = status is OutcomeStatus.TRUNCATED
    if offered and turns and not turns[-1].actions:
        said = " ".join(part for part in (turns[-1].thought, text_of(turns[-1].message)) if part)
        if cut_off or not said.strip() or _CANNOT.search(said):
            return "gave_up"
    return "timeout" if cut_off else "wrong_answer"


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function", tool)
    return str(function.get("name")) if isinstance(function, dict) else ""


def _loops(turns: Sequence[Step]) -> bool:
    run, before = 1, None
    for step in turns:
        done = [(a.tool, a.args, a.raw_args if a.args is None else None) for a in step.actions]
        now = (done, [text_of(seen.content) for seen in step.observations])
        run = run + 1 if done and now == before else 1
        if run == LOOP:
            return True
        before = now
    return False


def _told(steps: Sequence[Step], step: Step) -> str:
    """What a user said right after a turn."""
    place = next(i for i, each in enumerate(steps) if each is step) + 1
    following = steps[place] if place < len(steps) else None
    return text_of(following.message) if following is not None and following.actor is Actor.USER else ""


def _fault(step: Step, offered: set[str], told: str) -> FailureKind | None:
    if told.startswith(UNREADABLE) or any(action.args is None for action in step.actions):
        return "format"
    if any(action.tool not in offered for action in step.actions):
        return "wrong_tool"
    return "bad_arguments" if any(seen.is_error for seen in step.observations) else None
