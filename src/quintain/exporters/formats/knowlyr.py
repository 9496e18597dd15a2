"""knowlyr's training rows, with the run as flat `Step N:` text, and its benchmark file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from quintain.exporters.chat_turns import (
    MASKS,
    Losses,
    Turn,
    count_masked,
    count_weight,
    prompt_turn_count,
    require_answers,
    split_pair,
    turns_of,
    until_last_agent_turn,
)
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import Line, json_lines, write_splits
from quintain.exporters.step_text import flat_text
from quintain.records.dataset import BenchmarkRow, Dataset, DatasetRow, GroupRow, PairRow, Row, SplitName, StepValues
from quintain.records.trajectory import Actor, Task, Trajectory, text_of

_SYSTEM = "system prompts and schemas of tools are lost"


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
    """One file a split; a benchmark is one JSON array."""

    def array(lines: Iterable[Line], split: SplitName) -> tuple[str, int]:
        name = "benchmark.json" if split == "test" else f"benchmark-{split}.json"
        return name, _write_array(lines, folder / name)

    return write_splits(dataset, rows, _lines, array if dataset.kind == "benchmark" else json_lines(folder))


EXPORTER = Exporter("knowlyr", frozenset({"sft", "dpo", "grpo", "benchmark"}), _write)


def _lines(row: Row, losses: Losses) -> Iterator[Line]:
    if isinstance(row, DatasetRow):
        yield _example(row, losses)
    elif isinstance(row, PairRow):
        split_pair(row, Losses())  # both runs must begin alike
        count_weight(row, losses)
        chosen, rejected = (_response(run, losses)[0] for run in (row.chosen, row.rejected))
        for run in (row.chosen, row.rejected):
            _count_lost_rewards(run, losses)
        yield {
            "prompt": _prompt(row.chosen),
            "chosen": chosen,
            "rejected": rejected,
            "task_id": row.chosen.task.id or "",
            "reward_margin": row.margin,
            "metadata": {
                "chosen_model": row.chosen.agent.model,
                "rejected_model": row.rejected.agent.model,
                "chosen_reward": row.chosen.outcome.reward,
                "rejected_reward": row.rejected.outcome.reward,
            },
        }
    elif isinstance(row, GroupRow):
        values = row.step_values or [()] * len(row.trajectories)
        members = zip(row.trajectories, row.rewards, values, strict=True)
        yield {
            "task_id": row.key,
            "prompt": _prompt(row.trajectories[0]),
            "trajectories": [_member(run, reward, of_steps, losses) for run, reward, of_steps in members],
        }
    elif isinstance(row, BenchmarkRow):
        yield _benchmark(row)


def _example(row: DatasetRow, losses: Losses) -> dict[str, Any]:
    count_weight(row, losses)
    run = row.trajectory
    response, steps = _response(run, losses)
    _count_lost_rewards(run, losses)
    return {
        "instruction": _prompt(run),
        "input": json.dumps(_repository(run.task), ensure_ascii=False),
        "response": response,
        "task_id": run.task.id or "",
        "reward": run.outcome.reward if row.reward is None else row.reward,
        "metadata": {"agent_framework": run.agent.name, "agent_model": run.agent.model, "total_steps": steps},
    }


def _member(run: Trajectory, reward: float, values: StepValues, losses: Losses) -> dict[str, Any]:
    """Return a run of a group, with the values of its steps, else their recorded rewards, where each step has one."""
    response, steps = _response(run, losses)
    known = values or tuple(step.reward for step in run.agent_steps)
    if len(known) != steps or any(value is None for value in known):
        _count_lost_rewards(run, losses)
        return {"response": response, "reward": reward}
    return {"response": response, "reward": reward, "step_rewards": list(known)}


def _count_lost_rewards(run: Trajectory, losses: Losses) -> None:
    losses["rewards of steps are lost"] += any(step.reward is not None for step in run.steps)


def _benchmark(row: BenchmarkRow) -> dict[str, Any]:
    references = [
        {
            "agent_model": reference.model,
            "reward": reference.reward,
            "success": reference.success,
            "total_steps": reference.steps,
        }
        for reference in row.references
    ]
    return {
        "task_id": row.task.id or "",
        "description": row.task.prompt,
        **_repository(row.task),
        "reference_trajectories": references,
        "difficulty": row.task.difficulty,
        "expected_reward_range": row.reward_range and list(row.reward_range),
    }


def _response(run: Trajectory, losses: Losses) -> tuple[str, int]:
    turns: list[Turn] = turns_of(run, losses)
    require_answers(until_last_agent_turn(turns, Losses()))
    n = prompt_turn_count(turns)
    losses[_SYSTEM] += bool(run.tools) or any(turn.role == "system" for turn in turns[:n])
    losses[MASKS] += count_masked(turns)
    return flat_text(turns[n:], losses)


def _prompt(run: Trajectory) -> str:
    """Request of the user before the agent begins."""
    asked = []
    for step in run.steps:
        if step.actor is Actor.AGENT:
            break
        if step.actor is Actor.USER:
            asked.append(text_of(step.message))
    return "\n\n".join(asked) or run.task.prompt


def _repository(task: Task) -> dict[str, str]:
    held = {name: task.metadata.get(name) for name in ("repo", "base_commit", "test_command")}
    return {name: value if isinstance(value, str) else "" for name, value in held.items()}


def _write_array(lines: Iterable[Line], path: Path) -> int:
    n = 0
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(("[\n" if not n else ",\n") + json.dumps(line, ensure_ascii=False, allow_nan=False))
            n += 1
        file.write("\n]\n")
    if not n:
        path.unlink()
    return n
