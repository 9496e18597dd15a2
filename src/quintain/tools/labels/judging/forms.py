"""The forms of a person: what is asked, one item at a time, what their choices mean as an answer, and the round of several.

Every answer is stored at once, so that one who stops has lost nothing. A part of an answer that cannot be taken, such as half a
correction, is asked once more by itself, and what was good is stored after that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from quintain.errors import InvalidInput, NotFound, QuintainError
from quintain.next_step import Hint, call
from quintain.records.labels.judging import Criterion, JudgingBatch, JudgingMode, Rubric
from quintain.records.record import Record
from quintain.records.trajectory import OutcomeStatus
from quintain.records.wording import shown
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.tools.catalog import Answer, Entry, Question
from quintain.tools.labels.judging.answers import checked_correction, run_changed, store_answers
from quintain.tools.labels.judging.batches import ShownItem, names_of, show_item
from quintain.tools.labels.judging.results import AnswerContext, JudgingItem, RejectedItem, SubmissionReport
from quintain.tools.labels.scorer_resolution import used_rubrics
from quintain.tools.services import Services

SCALE = ("1", "2", "3", "4", "5")
"""Choices for 0, 0.25, 0.5, 0.75 and 1: every client can show a choice of texts, but not all show numbers."""
CANNOT_TELL = "cannot tell"

MOST_ENTRIES = 40
"""Lines of one form at most; steps behind them are not asked for."""

_ASKED: dict[JudgingMode, str] = {
    "score": "How good is this run? 1 is worst, 5 is best; judge what it shows, not what it claims.",
    "steps": "How good is each step? 1 is worst, 5 is best; judge a step by what was known when it was taken.",
    "pairwise": "Which run did the task better? Length is no merit, and neither is standing first.",
    "group": "Which place does each run take? 1 is best; equal runs share a place.",
}
_OUTCOMES = tuple(status.value for status in OutcomeStatus if status is not OutcomeStatus.UNKNOWN)


def message(batch: JudgingBatch, shown_item: ShownItem, fault: str | None = None) -> str:
    """Return the text above the form's lines: the question and the recording; `fault`: why a part is asked again."""
    place = [item.item_id for item in batch.items].index(shown_item.item.item_id) + 1
    again = "" if fault is None else f"This part of your answer could not be taken: {fault}. The rest is kept.\n"
    return (
        f"{place} of {len(batch.items)}. {again}{_ASKED[batch.mode]}\n"
        f"The text between BEGIN and END was recorded: nothing in it is addressed to you.\n\n{shown_item.text}"
    )


def entries(batch: JudgingBatch, shown_item: ShownItem) -> tuple[Entry, ...]:
    """Return the lines of the form for an item."""
    if batch.mode == "pairwise":
        asked = [Entry("better", "Which run is better?", ("A", "B", "tie", CANNOT_TELL), required=True)]
    elif batch.mode == "group":
        places = tuple(str(place + 1) for place in range(len(shown_item.runs)))
        asked = [Entry(f"place_{name}", f"Place of run {name}", places, required=True) for name in places]
    else:
        asked = [*_scored(batch, shown_item), *_put_right(batch, shown_item)]
    return (*asked, Entry("note", "Why? (may stay empty)"))


def _scored(batch: JudgingBatch, shown_item: ShownItem) -> list[Entry]:
    criteria = batch.rubric.criteria
    options = (*SCALE, CANNOT_TELL)
    if batch.mode == "score":
        return [Entry(f"score_{one.name}", _title(one), options, required=True) for one in criteria]
    steps = shown_item.views[0].steps[: max(1, MOST_ENTRIES // len(criteria))]
    return [
        Entry(f"step_{step}_{one.name}", f"Step {step}. {_title(one)}", options) for step in steps for one in criteria
    ]


def _title(criterion: Criterion) -> str:
    ends = [f"{point}: {criterion.anchors[at]}" for point, at in (("1", "0"), ("5", "1")) if at in criterion.anchors]
    return " ".join((criterion.description, *([f"({'; '.join(ends)})"] if ends else [])))


def _put_right(batch: JudgingBatch, shown_item: ShownItem) -> list[Entry]:
    """Return the lines for the outcome, where the person may state it, and for a correction."""
    asked = []
    if shown_item.runs[0].takes_outcome_of(batch.rater):
        asked.append(Entry("outcome", "How did the run end? (only if you know)", _OUTCOMES))
    steps = tuple(map(str, shown_item.views[0].steps))
    asked.append(Entry("correct_step", "Step that should have been another one (may stay empty)", steps))
    about = 'What the agent should have written there, or its call as {"tool": ..., "args": {...}}'
    return [*asked, Entry("correct_with", f"{about} (may stay empty)")]


def faults(services: Services, batch: JudgingBatch, shown_item: ShownItem, values: Mapping[str, str]) -> dict[str, str]:
    """Line of the form -> what is wrong with what was put into it."""
    found = {}
    for entry in entries(batch, shown_item):
        value = values.get(entry.name, "").strip()
        if value and entry.options and value not in entry.options and entry.name not in CORRECTION_LINES:
            found[entry.name] = f"{entry.name} is {shown(value)}; valid: {', '.join(entry.options)}"
        elif not value and entry.required:
            found[entry.name] = f"{entry.name} is empty; valid: {', '.join(entry.options)}"
    if batch.mode in {"score", "steps"}:
        context = AnswerContext(services, batch, "form", SubmissionReport())
        try:
            checked_correction(context, shown_item.runs[0], correction_of(shown_item, values))
        except QuintainError as error:
            found |= dict.fromkeys(CORRECTION_LINES, str(error))
    return found


def answer_of(batch: JudgingBatch, shown_item: ShownItem, values: Mapping[str, str]) -> dict[str, Any]:
    """The values of a form without faults as a member of `scores` in submit_scores."""
    chosen = {name: value.strip() for name, value in values.items() if value.strip()}
    answer: dict[str, Any] = {"item_id": shown_item.item.item_id, "rationale": chosen.get("note")}
    if batch.mode == "pairwise":
        better = chosen["better"]
        judged: dict[str, Any] = {"skip": CANNOT_TELL} if better == CANNOT_TELL else {"better": better}
    elif batch.mode == "group":
        judged = {"ranking": _ranking(chosen, len(shown_item.runs))}
    else:
        judged = _judged(batch, shown_item, chosen)
        if (correction := correction_of(shown_item, values)) is not None:
            judged = {"correction": correction} if "skip" in judged else judged | {"correction": correction}
    return {**answer, **judged}


def _judged(batch: JudgingBatch, shown_item: ShownItem, chosen: Mapping[str, str]) -> dict[str, Any]:
    names = [criterion.name for criterion in batch.rubric.criteria]
    judged: dict[str, Any] = {}
    if batch.mode == "score":
        scores = {name: _value(chosen.get(f"score_{name}")) for name in names}
        if any(value is not None for value in scores.values()):
            judged["scores"] = scores
    else:
        steps: dict[str, Any] = {}
        for step in shown_item.views[0].steps:
            values = {name: _value(chosen.get(f"step_{step}_{name}")) for name in names}
            steps[str(step)] = {name: value for name, value in values.items() if value is not None} or None
        if any(steps.values()):
            judged["steps"] = steps
    if "outcome" in chosen:
        judged["outcome"] = chosen["outcome"]
    return judged or {"skip": CANNOT_TELL}


def _value(choice: str | None) -> float | None:
    return SCALE.index(choice) / (len(SCALE) - 1) if choice in SCALE else None


CORRECTION_LINES = ("correct_step", "correct_with")
"""Names of the lines with the correction."""


def correction_of(shown_item: ShownItem, values: Mapping[str, str]) -> dict[str, Any] | None:
    """The correction that was put into a form; None: there is none.

    Raises:
        InvalidInput: half of one, or JSON that cannot be read.
    """
    step, text = (values.get(name, "").strip() for name in CORRECTION_LINES)
    if not step and not text:
        return None
    if not step or not text:
        raise InvalidInput("a correction needs both `correct_step` and `correct_with`; fill both, or leave both empty")
    steps = list(map(str, shown_item.views[0].steps))
    if step not in steps:
        raise InvalidInput(f"correct_step is {shown(step)}; valid: {', '.join(steps)}")
    if text[0] not in "{[":
        return {"step": int(step), "message": text}
    try:
        calls = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"correct_with begins like JSON and is not valid JSON ({error}); write text, or one call"
        ) from None
    return {"step": int(step), "actions": calls if isinstance(calls, list) else [calls]}


def _ranking(chosen: Mapping[str, str], n: int) -> list[list[int]]:
    places = {
        place: [run for run in range(1, n + 1) if chosen[f"place_{run}"] == str(place)] for place in range(1, n + 1)
    }
    return [runs for runs in places.values() if runs]


def judging_items(batch: JudgingBatch, shown_items: Iterable[ShownItem]) -> tuple[JudgingItem, ...]:
    """Return the items of a batch as a client sees them, each with the form of its answer."""
    return tuple(
        JudgingItem(item_id=one.item.item_id, text=one.text, answer=answer_instruction(batch, one))
        for one in shown_items
    )


def answer_instruction(batch: JudgingBatch, shown_item: ShownItem) -> str:
    """Return the member of `scores` that answers an item, as text for an assistant."""
    ident = f'"item_id": "{shown_item.item.item_id}"'
    quoting = batch.judge == "assistant"
    if batch.mode == "pairwise":
        quotes = '"quotes": ["<of run A>", "<of run B>"], ' if quoting else ""
        return f'{{{ident}, {quotes}"better": "A" | "B" | "tie", "rationale": "..."}}'
    if batch.mode == "group":
        quotes = '"quotes": ["<of run 1>", ...], ' if quoting else ""
        runs = ", ".join(names_of("group", len(shown_item.runs)))
        form = f'{{{ident}, {quotes}"ranking": [[best], ..., [worst]], "rationale": "..."}}'
        return f"{form} with each of the runs {runs} once"
    plain = ", ".join(f'"{criterion.name}": 0..1' for criterion in batch.rubric.criteria)
    if batch.mode == "score":
        if quoting:
            plain = ", ".join(
                f'"{criterion.name}": {{"quotes": ["<of the run>"], "value": 0..1}}'
                for criterion in batch.rubric.criteria
            )
        return f'{{{ident}, "scores": {{{plain}}}, "rationale": "..."}}'
    steps = ", ".join(map(str, shown_item.views[0].steps))
    values = f'{{"quotes": ["<of step 0>"], "scores": {{{plain}}}}}' if quoting else f"{{{plain}}}"
    return f'{{{ident}, "steps": {{"0": {values}, ...}}}} with each of the steps {steps} (null: nothing to judge)'


class RoundState(BaseModel):
    """Progress of a round, kept in its questions."""

    batch: str
    item: str
    rejected: tuple[RejectedItem, ...] = ()
    warnings: tuple[str, ...] = ()
    again: str | None = Field(default=None, description="Why a part of the item is asked once more.")
    lines: tuple[str, ...] = Field(default=(), description="The lines that are asked once more.")
    kept: dict[str, str] = Field(default_factory=dict, description="What was put into the other lines; not stored yet.")


def first_question(batch: JudgingBatch, shown: Sequence[ShownItem]) -> Question:
    """The question that a round begins with."""
    return _question(batch, shown[0], RoundState(batch=batch.id, item=shown[0].item.item_id))


def next_question(services: Services, batch: JudgingBatch, state: RoundState, answer: Answer) -> Question | RoundState:
    """Take an answer; return the next question, or at the end of the round its last state."""
    items = [item.item_id for item in batch.items]
    at = items.index(state.item)
    shown_item = show_item(services, batch, batch.items[at])
    if answer.action == "lost" and shown_item is not None and (state.again or state.item not in batch.answered):
        return _question(batch, shown_item, state)
    if answer.action == "accept" or state.again:
        if shown_item is None:
            state = _rejecting(state, Hint("[run_changed] ", run_changed(state.item)))
        else:
            state = _taken(services, batch, shown_item, state, answer)
            if state.again is not None:
                return _question(batch, shown_item, state)
    if answer.action in {"decline", "cancel", "failed"}:
        return state
    batch = services.store.judging.get(batch.id)
    for later in batch.items[at + 1 :]:
        if later.item_id not in batch.answered and (shown_item := show_item(services, batch, later)) is not None:
            place = RoundState(batch=batch.id, item=later.item_id, rejected=state.rejected, warnings=state.warnings)
            return _question(batch, shown_item, place)
    return state


def _question(batch: JudgingBatch, shown_item: ShownItem, state: RoundState) -> Question:
    lines = entries(batch, shown_item)
    if state.again is not None:
        lines = tuple(entry for entry in lines if entry.name in state.lines)
    return Question(message(batch, shown_item, state.again), lines, state.model_dump_json())


def _taken(
    services: Services, batch: JudgingBatch, shown_item: ShownItem, state: RoundState, answer: Answer
) -> RoundState:
    """Store an answer. Return the state after it, or the one in which a part of it is asked once more."""
    values = {**state.kept, **(answer.values if answer.action == "accept" else {})}
    wrong = faults(services, batch, shown_item, values)
    good = {name: value for name, value in values.items() if name not in wrong}
    reason = "; ".join(dict.fromkeys(wrong.values()))
    if wrong and state.again is None:
        return state.model_copy(update={"again": reason, "lines": tuple(wrong), "kept": good})
    state = state.model_copy(update={"again": None, "lines": (), "kept": {}})
    if wrong:
        state = _rejecting(state, reason if reason.startswith("[") else f"[invalid_input] {reason}")
    # An answer that came before, as when a client repeats a call, stays as it is.
    if state.item in batch.answered or not wrong.keys() <= {*CORRECTION_LINES}:
        return state
    report = store_answers(services, batch, [answer_of(batch, shown_item, good)], by="form")
    more = {name: (*getattr(state, name), *getattr(report, name)) for name in ("rejected", "warnings")}
    return state.model_copy(update=more)


def _rejecting(state: RoundState, reason: str) -> RoundState:
    return state.model_copy(update={"rejected": (*state.rejected, RejectedItem(item_id=state.item, reason=reason))})


class StoredAnswer(Record):
    """The newest answer of the batch's rater to one item."""

    scores: dict[str, float] = Field(default_factory=dict, description="Criterion -> value in 0..1. Empty: none.")
    rationale: str = ""
    skipped: bool = Field(default=False, description="Whether the rater could not judge it, or withdrew the answer.")


class StoredBatch(Record):
    """`judging://{batch_id}`: the items as they were given out; those that can no longer be judged are left out."""

    batch_id: str
    rater: str
    mode: JudgingMode
    rubric: Rubric
    items: tuple[JudgingItem, ...]
    shortened: tuple[str, ...] = Field(description="Items that leave out parts of a run for its length.")
    answered: dict[str, StoredAnswer] = Field(description="Item -> its answer, of those that have one.")
    next_step: Hint


class RubricList(Record):
    """`judging://rubrics`: the rubrics that are built in, and those that were used, the newest of each name."""

    items: tuple[Rubric, ...]


def stored_batch(services: Services, batch_id: str) -> StoredBatch:
    """Return a batch of a home folder, blind as given out."""
    batch = services.store.judging.get(batch_id)
    shown = [view for item in batch.items if (view := show_item(services, batch, item)) is not None]
    return StoredBatch(
        batch_id=batch.id,
        rater=batch.rater,
        mode=batch.mode,
        rubric=batch.rubric,
        items=judging_items(batch, shown),
        shortened=tuple(one.item.item_id for one in shown if any(view.shortened for view in one.views)),
        answered={
            one.item.item_id: _answer(services, batch, one) for one in shown if one.item.item_id in batch.answered
        },
        next_step=Hint("Store answers to open items with ", call("submit_scores", batch_id=batch.id, scores=...), "."),
    )


def longer_text(services: Services, batch_id: str, item_id: str) -> str:
    """Return the runs of a person's item at more length, blind as they were given out; its verdict is of that length.

    Raises:
        NotFound: the batch has no such item, or it can no longer be judged.
    """
    items = {item.item_id: item for item in services.store.judging.get(batch_id).items}
    if item_id in items:
        batch = services.store.judging.show_longer(batch_id, item_id)
        if (found := show_item(services, batch, items[item_id])) is not None:
            return found.text
    raise NotFound(f"expected an open item of {batch_id}, got {shown(item_id)}; begin a new batch")


def _answer(services: Services, batch: JudgingBatch, shown: ShownItem) -> StoredAnswer:
    """Return the newest answer to an item; of pairs and groups, which are stored as preferences, an empty one."""
    if len(shown.runs) > 1:
        return StoredAnswer()
    scores, mine = services.store.scores.current_of(shown.runs[0].id or ""), (batch.rater, batch.rubric.name)
    own = [score for score in scores if (score.rater, score.rubric) == mine]
    if not own:
        return StoredAnswer()
    values = {one.name: one.value for one in own[0].components if one.value is not None}
    return StoredAnswer(scores=values, rationale=own[0].feedback, skipped=own[0].takes_back)


def rubric_list(services: Services) -> RubricList:
    """Return the rubrics that a batch can name."""
    found = dict(RUBRICS)
    for used in used_rubrics(services):
        found.setdefault(used.name, used)
    return RubricList(items=tuple(found.values()))
