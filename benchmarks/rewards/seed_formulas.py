"""The rewards of three published systems as their code computes them, faults included: what ours is compared with.

knowlyr      knowlyr-gym c217898, `packages/reward/src/agentreward/{rules,reward}.py`, without a judge (the default)
sage         SAGE v0.2.4.13, `sage/tools/agent_training/reward_model.py`
helloagents  HelloAgents V0.2.9, `hello_agents/rl/rewards.py`: accuracy, and accuracy with the step bonus

Written from their behaviour, not copied. They take our runs; what is read from them is what the originals read.
"""

from __future__ import annotations

import re
from typing import Any

from quintain.records.trajectory import OutcomeStatus, Trajectory, text_of

_KNOWLYR_TOOLS = {
    **dict.fromkeys(("read_file", "read", "cat"), "read"),
    **dict.fromkeys(("edit_file", "edit", "sed", "write_file", "write"), "write"),
    **dict.fromkeys(("bash", "shell", "run", "git", "ipython"), "execute"),
    **dict.fromkeys(("grep", "glob", "find", "ls", "search"), "search"),
}
_KNOWLYR_TARGETS = ("file_path", "path", "url", "element_id")
_KNOWLYR_RULED = 0.15


def knowlyr(run: Trajectory) -> float:
    """0.4 outcome + 0.5 process + 0.1 efficiency.

    The rubrics that need a judge stand at 0.5 each, and the reference of efficiency is the run's own length: it is always 1.
    """
    steps = _flat(run)
    totals = [
        0.70 * 0.5
        + _KNOWLYR_RULED * _information(steps, i)
        + _KNOWLYR_RULED * min(_redundancy(steps, i), _regression(steps, i))
        for i in range(len(steps))
    ]
    process = sum(totals) / len(totals) if totals else 0.0
    scores = run.outcome.scores
    if scores.get("tests_total"):
        outcome = scores["tests_passed"] / scores["tests_total"]
    else:
        outcome = float(run.outcome.status is OutcomeStatus.SUCCESS)
    return 0.4 * outcome + 0.5 * process + 0.1 * 1.0


def _flat(run: Trajectory) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for step in run.agent_steps:
        for i, action in enumerate(step.actions):
            seen = step.observations[i].content if i < len(step.observations) else ""
            category = _KNOWLYR_TOOLS.get(action.tool.casefold(), "")
            params = action.args or {}
            target = next((str(params[name]) for name in _KNOWLYR_TARGETS if name in params), "")
            steps.append(
                {"tool": action.tool, "params": params, "category": category, "target": target, "output": text_of(seen)}
            )
        if not step.actions:
            steps.append({"tool": "", "params": {}, "category": "", "target": "", "output": text_of(step.message)})
    return steps


def _redundancy(steps: list[dict[str, Any]], i: int) -> float:
    """Looks through all earlier steps for each step, as the original does: the cost grows with the square of the length."""
    step = steps[i]
    looks = step["category"] in {"read", "search"}
    exact, target_read = False, False
    for earlier in steps[:i]:
        if earlier["category"] == "write" and earlier["target"] == step["target"]:
            exact = target_read = False
            continue
        exact |= earlier["tool"] == step["tool"] and sorted(earlier["params"].items(), key=str) == sorted(
            step["params"].items(), key=str
        )
        target_read |= (
            bool(step["target"]) and earlier["category"] in {"read", "search"} and earlier["target"] == step["target"]
        )
    if exact:
        return 0.0 if looks else 0.3
    return 0.0 if looks and target_read else 1.0


def _regression(steps: list[dict[str, Any]], i: int) -> float:
    step = steps[i]
    old, new = step["params"].get("old_string"), step["params"].get("new_string")
    if step["category"] != "write" or old is None or new is None:
        return 1.0
    for earlier in steps[:i]:
        swapped = (earlier["params"].get("new_string"), earlier["params"].get("old_string")) == (old, new)
        if swapped and earlier["target"] == step["target"]:
            return 0.0
    return 1.0


def _information(steps: list[dict[str, Any]], i: int) -> float:
    step = steps[i]
    if i == 0 or step["category"] not in {"write", "execute"}:
        return 1.0
    known: set[str] = set()
    for earlier in steps[:i]:
        for word in earlier["output"].split():
            word = word.strip(".,:;()[]{}\"'")
            if len(word) > 3 and ("/" in word or "_" in word):
                known.add(word.lower())
    params = str(step["params"]).lower()
    return 1.0 if not known or any(word in params for word in known) else 0.7


_SAGE_NAME = re.compile(r"^[a-z]+(_[a-z]+)*_\d{3}$")
_SAGE_DONE = ("done", "completed", "finished", "完成")


def sage(run: Trajectory) -> float:
    """0.40 completion + 0.25 tool F1 + 0.15 efficiency + 0.10 timing + 0.10 format, less penalties, within 0..1.

    Duplicates are taken out before anything counts them; a tool whose name does not end in three digits is held to be invented.
    """
    wanted = set(run.task.metadata.get("target_tools", ()))
    called = [action.tool for step in run.agent_steps for action in step.actions]
    distinct = list(dict.fromkeys(called))
    trace = [observation.is_error for step in run.agent_steps for observation in step.observations]
    text = "\n".join(text_of(step.message) for step in run.agent_steps).lower()
    coverage = len(wanted & set(distinct)) / len(wanted) if wanted else 1.0
    if trace:
        completion = sum(not failed for failed in trace) / len(trace)
    else:
        completion = 0.5 * coverage + 0.5 * (1.0 if any(word in text for word in _SAGE_DONE) else 0.5)
    f1 = 2 * len(wanted & set(distinct)) / (len(wanted) + len(distinct)) if wanted or distinct else 1.0
    optimal = 5
    efficiency = (
        0.5 if not trace else 1.0 if len(trace) <= optimal else max(0.0, 1 - 0.2 * (len(trace) - optimal) / optimal)
    )
    timing = 1.0  # of distinct names neither duplicates nor neighbours are equal
    total = 0.40 * completion + 0.25 * f1 + 0.15 * efficiency + 0.10 * timing + 0.10
    total -= 0.3 * len(set(distinct) - wanted)
    total -= 0.4 * any(not _SAGE_NAME.match(name) for name in distinct)
    return min(1.0, max(0.0, total))


_ANSWER_MARKS = (r"Final Answer:\s*(.+)", r"####\s*(.+)", r"答案[:：]?\s*(.+)", r"Therefore,?\s*(.+)")
_NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")


def helloagents_accuracy(run: Trajectory) -> float | None:
    """1 where the first number after the first mark equals the answer; None where the task has no answer."""
    truth = run.task.metadata.get("answer")
    if truth is None:
        return None
    text = _completion(run)
    found = next((match[1] for mark in _ANSWER_MARKS if (match := re.search(mark, text))), None)
    if found is None:
        lines = [line for line in text.splitlines() if _NUMBER.search(line)]
        found = _NUMBER.findall(lines[-1])[-1] if lines else ""
    numbers = [_NUMBER.search(one.replace("$", "").replace("%", "")) for one in (found, str(truth))]
    if numbers[0] and numbers[1]:
        one, other = (float(match[0].replace(",", "")) for match in numbers if match)
        return float(abs(one - other) < 1e-4)
    return float(found.strip().lower() == str(truth).strip().lower())


def helloagents_step(run: Trajectory) -> float | None:
    """Accuracy plus 0.1 for each line break up to 0.5, for wrong answers too."""
    accuracy = helloagents_accuracy(run)
    return None if accuracy is None else accuracy + min(0.1 * _completion(run).count("\n"), 0.5)


def _completion(run: Trajectory) -> str:
    return next((text for step in reversed(run.agent_steps) if (text := text_of(step.message))), "")


FORMULAS = {
    "knowlyr (published)": knowlyr,
    "sage (published)": sage,
    "helloagents accuracy (published)": helloagents_accuracy,
    "helloagents step (published)": helloagents_step,
}
"""Name -> formula; None: it has nothing to say of the run."""
