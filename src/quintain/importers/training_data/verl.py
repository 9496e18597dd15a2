"""verl's rows: tasks for reinforcement learning (rejected, since they have no answer) and dumped rollouts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from quintain.errors import InvalidInput
from quintain.importers.protocol import Probe, Report, Run
from quintain.importers.row_reader import build_chat_run, first_name, matching_share, row_importer
from quintain.importers.run_builder import NO_RUN
from quintain.importers.training_data.prompt_answers import parse_messages, with_completion
from quintain.importers.transcripts.chat_messages import ROLES
from quintain.importers.values import as_dict, as_number, nonblank
from quintain.records.trajectory import Outcome, Task


class _Template(NamedTuple):
    opening: re.Pattern[str]
    """Matches up to the first character of a turn; its group is the role."""
    closing: re.Pattern[str]
    begins: re.Pattern[str]
    """Matches text allowed before the first turn."""


_ROLE = r"(?P<role>[a-zA-Z_]{1,20})"
_TEMPLATES = (
    _Template(re.compile(rf"<\|im_start\|>{_ROLE}\n"), re.compile(r"<\|im_end\|>|<\|endoftext\|>"), re.compile(r"\s*")),
    _Template(
        re.compile(rf"<\|start_header_id\|>{_ROLE}<\|end_header_id\|>\n\n"),
        re.compile(r"<\|eot_id\|>|<\|eom_id\|>|<\|end_of_text\|>"),
        re.compile(r"\s*(<\|begin_of_text\|>)*\s*"),
    ),
)
_BARE = re.compile(r"\A(system|user)\n.*\nassistant\n\s*\Z", re.DOTALL)
"""Matches a rendered prompt without its special tokens."""
_UNMARKED = "the prompts were rendered by a template without its special tokens: each prompt is one user turn"


def rendered_messages(prompt: str, completion: str) -> list[dict[str, Any]] | None:
    """Return the messages of a prompt and its completion as rendered by ChatML or Llama 3; None without clear marks.

    What a model wrote in its turn (thoughts, tool calls) stays as it wrote it. Turns of the agent in the prompt are
    context, and not in the loss (`weight` 0).
    """
    whole = prompt + completion
    for opening, closing, begins in _TEMPLATES:
        found = list(opening.finditer(whole))
        if not found or not begins.fullmatch(whole[: found[0].start()]):
            continue
        messages = []
        for turn, after in zip(found, [*found[1:], None], strict=True):
            body = whole[turn.end() : after.start() if after else len(whole)]
            content = closing.split(body, maxsplit=1)[0]
            role = ROLES.get(turn["role"])
            if role is None or (after and not closing.search(body)):
                return None
            is_context = role == "assistant" and turn.end() < len(prompt) and content.strip() != ""
            is_context = is_context and turn.end() + len(content) <= len(prompt)
            messages.append({"role": role, "content": content, **({"weight": 0} if is_context else {})})
        return messages
    return None


_ANSWERS = ("responses", "response", "completion", "output")


def _detect(probe: Probe) -> float:
    """Match rows with `data_source` and `reward_model`, or rollouts with `input`, `output` and `score`."""
    return max(
        0.95 * matching_share(probe, _is_task, "data_source"), 0.86 * matching_share(probe, _is_rollout, "score")
    )


def _row(row: dict[str, Any], line: int, report: Report) -> Iterator[Run]:
    prompt = parse_messages("user", row.get("prompt", row.get("input")), report)
    held = next((row[key] for key in _ANSWERS if row.get(key)), None)
    several = isinstance(held, list) and all(isinstance(answer, str) for answer in held)
    answers = [
        answer for one in (held if several and held else [held]) if (answer := parse_messages("assistant", one, report))
    ]
    if not answers:
        raise InvalidInput(NO_RUN)
    score = as_number(row.get("score", row.get("reward")))
    info, rule = as_dict(row.get("extra_info")), as_dict(row.get("reward_model"))
    truth = rule.get("ground_truth", row.get("gts"))
    task = Task(
        id=first_name(info, ("task_id", "index")),
        environment=nonblank(row.get("data_source")),
        type=nonblank(row.get("ability")),
        metadata={"answer": truth} if isinstance(truth, str | int | float) else {},
    )
    for place, answer in enumerate(answers):
        yield from build_chat_run(
            _rendered(row, answer, report) or with_completion(prompt, answer),
            {"tools": row.get("tools")},
            line,
            report,
            task=task,
            outcome=Outcome(reward=score if len(answers) == 1 else None),
            episode_key=str(place) if len(answers) > 1 else None,
        )


IMPORTER = row_importer("verl", "verl rows and rollouts", _detect, _row)


def _rendered(row: dict[str, Any], answer: list[Any], report: Report) -> list[dict[str, Any]] | None:
    """Return the messages of a rendered prompt and its completion."""
    prompt, completion = (
        row.get("prompt", row.get("input")),
        as_dict(answer[0]).get("content") if len(answer) == 1 else None,
    )
    if not isinstance(prompt, str) or not isinstance(completion, str):
        return None
    if _BARE.match(prompt):
        report.note(_UNMARKED)
    return rendered_messages(prompt, completion)


def _is_task(row: dict[str, Any]) -> bool:
    return "data_source" in row and "prompt" in row and isinstance(row.get("reward_model"), dict)


def _is_rollout(row: dict[str, Any]) -> bool:
    texts = isinstance(row.get("input"), str) and isinstance(row.get("output"), str)
    return texts and "instruction" not in row and as_number(row.get("score")) is not None
