"""Classification of unsolved episodes by rules on the trajectory's structure. The first matching rule applies.

1. `endpoint_error`, `environment_error`: the agent's endpoint did not answer, or the environment failed, so the episode
   is not evidence about the agent.
2. `loop`: three consecutive turns with equal calls and equal results.
3. The fault of the last turn, or else the fault of more than half of the turns. The fault of a turn is the first of
   `format` (unreadable, or call arguments are not JSON), `wrong_tool` (calls a tool that is not offered) and
   `bad_arguments` (an offered tool returns an error).
4. `wrong_tool`: the task names `target_tools`, and the agent called other tools only.
5. `gave_up`: tools are offered, and the last turn calls none and is empty or was followed by the cut-off.
6. `timeout`: a limit of turns, tokens or time ended the episode.
7. `wrong_answer`: the environment judged the agent's actions to be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from quintain.records.evaluation import FailureKind
from quintain.records.trajectory import Actor, OutcomeStatus, Step, Trajectory, text_of
from quintain.scoring.profiles import tool_functions
from quintain.scoring.rules.references import target_tools

LOOP = 3
"""Number of consecutive equal turns that form a loop."""

UNREADABLE = "Your turn could not be read:"
"""Start of the reply to a turn that is not an action and did not reach the environment."""

NO_ANSWER = "endpoint_error"
"""Exit status of an episode whose agent got no answer from its endpoint."""


def failure_of(run: Trajectory) -> FailureKind | None:
    """Return why an episode was not solved, or None if it was solved or has no verdict."""
    status = run.outcome.status
    if status is OutcomeStatus.ERROR:
        return "endpoint_error" if run.outcome.exit_status == NO_ANSWER else "environment_error"
    if status in {OutcomeStatus.SUCCESS, OutcomeStatus.UNKNOWN}:
        return None
    turns = [step for step in run.agent_steps if step.extra.get("acted") is not False]
    if _is_loop(turns):
        return "loop"
    offered = {str(function.get("name")) for function in tool_functions(run)}
    faults = [_fault(step, offered, _next_user_text(run.steps, step)) for step in turns]
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
        text = (turns[-1].thought or "") + text_of(turns[-1].message)
        if cut_off or not text.strip():
            return "gave_up"
    return "timeout" if cut_off else "wrong_answer"


def _is_loop(turns: Sequence[Step]) -> bool:
    run, before = 1, None
    for step in turns:
        calls = [(a.tool, a.args, a.raw_args if a.args is None else None) for a in step.actions]
        now = (calls, [text_of(observation.content) for observation in step.observations])
        run = run + 1 if calls and now == before else 1
        if run == LOOP:
            return True
        before = now
    return False


def _next_user_text(steps: Sequence[Step], step: Step) -> str:
    """Return the user message directly after a step, or an empty string."""
    place = next(i for i, each in enumerate(steps) if each is step) + 1
    following = steps[place] if place < len(steps) else None
    return text_of(following.message) if following is not None and following.actor is Actor.USER else ""


def _fault(step: Step, offered: set[str], next_user_text: str) -> FailureKind | None:
    if next_user_text.startswith(UNREADABLE) or any(action.args is None for action in step.actions):
        return "format"
    if any(action.tool not in offered for action in step.actions):
        return "wrong_tool"
    return "bad_arguments" if any(observation.is_error for observation in step.observations) else None
