"""Judging by the assistant that is connected, or by the person in front of it: a batch is given out, answers come back."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from quintain.errors import InvalidInput, NotFound
from quintain.records.filters import TrajectoryFilter
from quintain.records.judging import Judge, JudgingBatch, JudgingMode
from quintain.records.record import Seed, counted
from quintain.records.tags import tag_error
from quintain.scoring.judges.questions import instructions
from quintain.scoring.judges.rubrics import rubric as find_rubric
from quintain.tools.labels.judging.agreement import agreement
from quintain.tools.labels.judging.answers import RUN_CHANGED, take
from quintain.tools.labels.judging.batches import Choice, Shown, Wanted, choose, fill, mark_of_batch, show_item
from quintain.tools.labels.judging.forms import what_to_answer
from quintain.tools.labels.judging.results import Agreement, JudgingBatchResult, JudgingItem, SubmitResult
from quintain.tools.labels.judging.rounds import first_question, next_question, read_place
from quintain.tools.labels.judging.taking import Submitted
from quintain.tools.selection import RunIds
from quintain.tools.services import Services
from quintain.tools.spec import Answer, Question

ROUNDS = 8
"""Forms that one call asks a person for: clients end a call of more than ten rounds, and people tire."""

_BATCHES = 500
"""Newest batches whose runs the agreement of raters is worked out on."""
_WARNINGS = 20


def _brief(kind: str | list[str], description: str, **more: Any) -> WithJsonSchema:
    """What the list of tools says of an argument whose bounds would take more room than they help."""
    return WithJsonSchema({"type": kind, "description": description, **more})


_WHICH, _BY_ID = "Of which runs.", "The same, by id."
_RUBRIC = "Name, or {name, criteria[]}."
_SCORES = "One answer an item, as it asks, or {item_id, skip: why}."


def get_judging_batch(
    services: Services,
    limit: Annotated[int, Field(ge=1, le=50, description="Items at most; some come twice.")],
    judge: Annotated[Judge, Field(description="You or the person.")] = "assistant",
    mode: Annotated[JudgingMode, Field(description="What to judge.")] = "score",
    rubric: Annotated[
        str | dict[str, Any] | None, Field(description=_RUBRIC), _brief(["string", "object"], _RUBRIC)
    ] = None,
    filter: Annotated[TrajectoryFilter | None, Field(description=_WHICH), _brief("object", _WHICH)] = None,
    trajectory_ids: Annotated[
        RunIds, Field(description=_BY_ID), _brief("array", _BY_ID, items={"type": "string"})
    ] = None,
    rater: Annotated[str | None, Field(description="Their name.")] = None,
    seed: Annotated[Seed, Field(description="Of the choice."), _brief("integer", "Of the choice.")] = 0,
) -> JudgingBatchResult:
    """Give out runs to judge blind by a rubric; answer with submit_scores. pairwise, group: runs of a task.

    judge='person' asks in forms; where there are none, show the person the items.
    """
    wanted = _wanted(limit, judge, mode, rubric, rater=rater, seed=seed, filter=filter, trajectory_ids=trajectory_ids)
    batch, shown, choice = _new_batch(services, wanted)
    return _given_out(services, batch, shown) if shown else _nothing(services, wanted, choice)


def submit_scores(
    services: Services,
    batch_id: Annotated[str, Field(description="From get_judging_batch.")],
    scores: Annotated[
        list[Any],
        Field(min_length=1, max_length=200, description=_SCORES),
        _brief("array", _SCORES, items={"type": "object"}),
    ],
) -> SubmitResult:
    """Store answers to a judging batch: {item_id, scores{criterion: 0..1} | steps | better | ranking, rationale}.

    Of one run also `outcome`, if known, and `correction` {step, thought, actions[] or message}: what the agent should have
    done; it becomes a run to learn from and a preference.
    """
    batch = _found(services, batch_id)
    done = take(services, batch, scores)
    return came_of_it(services, services.store.judging.get(batch_id), done)


def submit_file(services: Services, batch_id: str, scores: list[Any]) -> SubmitResult:
    """As `submit_scores`, for whoever runs the command line: nothing stands between them and their word."""
    batch = _found(services, batch_id)
    done = take(services, batch, scores, by="operator")
    return came_of_it(services, services.store.judging.get(batch_id), done)


def ask_person(services: Services, answer: Answer | None, **arguments: Any) -> JudgingBatchResult | Question | None:
    """One form after the other for a person; every answer is stored at once, so that one who stops has lost nothing.

    Args:
        services: Where runs and answers are stored.
        answer: To the last question; None: the first is asked.
        arguments: Of `get_judging_batch`, the same with every answer.

    Returns:
        The next question, or at the end the result; None: the assistant shall judge, and nobody is asked.
    """
    if arguments.get("judge") != "person":
        return None
    if answer is None:
        wanted = _wanted(**{**arguments, "limit": min(arguments["limit"], ROUNDS)})
        batch, shown, choice = _new_batch(services, wanted, forms=True)
        return first_question(batch, shown) if shown else _nothing(services, wanted, choice)
    place = read_place(answer.state)
    asked = next_question(services, services.store.judging.get(place.batch), place, answer)
    if isinstance(asked, Question):
        return asked
    return _ended(services, services.store.judging.get(place.batch), asked, answer.action)


def _wanted(
    limit: int,
    judge: Judge = "assistant",
    mode: JudgingMode = "score",
    rubric: str | dict[str, Any] | None = None,
    *,
    rater: str | None = None,
    seed: int = 0,
    filter: TrajectoryFilter | None = None,
    trajectory_ids: Sequence[str] | None = None,
) -> Wanted:
    """What is asked for, names looked up.

    Raises:
        NotFound: there is no such rubric.
        InvalidInput: a rubric or a name that cannot be one.
    """
    name = (rater or "").strip().removeprefix(f"{judge}:")
    if name and (fault := tag_error(name)):
        raise InvalidInput(f"rater {fault.replace('a tag', 'a name')}")
    return Wanted(
        id=f"batch-{uuid.uuid4().hex[:10]}",
        judge=judge,
        rater=judge if name in {"", judge} else f"{judge}:{name}",
        mode=mode,
        rubric=find_rubric("steps" if rubric is None and mode == "steps" else rubric),
        limit=limit,
        seed=seed,
        filter=filter,
        ids=None if trajectory_ids is None else tuple(trajectory_ids),
    )


def _new_batch(services: Services, wanted: Wanted, *, forms: bool = False) -> tuple[JudgingBatch, list[Shown], Choice]:
    """A batch, what it shows, and what it was chosen from; one without items is not stored."""
    choice = choose(services, wanted)
    shown = fill(services, wanted, choice.items)
    batch = JudgingBatch(
        id=wanted.id,
        judge=wanted.judge,
        rater=wanted.rater,
        mode=wanted.mode,
        rubric=wanted.rubric,
        items=tuple(one.item for one in shown),
        forms=tuple(one.item.item_id for one in shown) if forms else (),
    )
    return (services.store.judging.add(batch, services.clock()) if shown else batch), shown, choice


def _nothing(services: Services, wanted: Wanted, choice: Choice) -> JudgingBatchResult:
    """Why there is nothing to judge, and what to do about it."""
    runs = "pairs or groups of runs of one task that differ" if wanted.mode in _ORDERS else "runs"
    record = "record runs (record_trajectory, import_trajectories, collect_rollouts)"
    if not choice.matching and wanted.ids is not None:
        why = "All of these runs were forgotten (get_lineage shows what they had touched): name others (search_trajectories)."
    elif not choice.matching and wanted.filter is not None and not wanted.filter.is_empty:
        asked = wanted.filter.model_dump(mode="json", exclude_defaults=True)
        why = f"No stored run matches {asked}: loosen the filter (search_trajectories shows what one finds)."
    elif not choice.matching:
        why = f"No run is stored: {record}."
    elif choice.matching == choice.corrections + choice.open:
        why = (
            f"Of {counted(choice.matching, 'run')} that match {choice.corrections} are corrections, which are judged only where "
            f"filter.tags names 'correction' and nobody replaced them, and {choice.open} still open (close them with "
            "record_trajectory, live='close')."
        )
    else:
        why = (
            f"There are no {runs} left that {wanted.rater!r} has not judged by rubric {wanted.rubric.name!r}, of "
            f"{counted(choice.matching, 'run')} that match: loosen the selection, take another rubric, mode or rater, or {record}."
        )
    return JudgingBatchResult(
        batch_id=None, rater=wanted.rater, agreement=_agreement(services, wanted.rater), next_step=why
    )


def _given_out(services: Services, batch: JudgingBatch, shown: Sequence[Shown]) -> JudgingBatchResult:
    return JudgingBatchResult(
        batch_id=batch.id,
        rater=batch.rater,
        instructions=instructions(
            batch.mode, batch.rubric, None if batch.judge == "person" else mark_of_batch(batch.id)
        ),
        rubric=batch.rubric,
        items=tuple(
            JudgingItem(item_id=one.item.item_id, text=one.text, answer=what_to_answer(batch, one)) for one in shown
        ),
        agreement=_agreement(services, batch.rater),
        next_step=_how_to_submit(batch, what_to_answer(batch, shown[0])),
    )


def _how_to_submit(batch: JudgingBatch, answer: str) -> str:
    call = f"submit_scores(batch_id={batch.id!r}, scores=[{answer}, ...])"
    more = ' Where an item cannot be judged: {"item_id": ..., "skip": "why"}.'
    if batch.mode in {"score", "steps"}:
        more += ' What the agent should have done at a step: "correction": {"step": N, "actions": [{"tool", "args"}]}.'
    if batch.judge == "person":
        return (
            f"Show the person each item with the rubric in plain words, and submit what they say, not what you think: {call}."
            f'{more} "outcome" where they know how the run ended.'
        )
    return f"Judge each item by itself, then {call}.{more}"


def _ended(services: Services, batch: JudgingBatch, done: Submitted, action: str) -> JudgingBatchResult:
    """What a person's round came to; where no form could be shown, the open items as text."""
    # Counted from what is stored: a client may repeat its last request.
    done = done.model_copy(
        update={"accepted": list(batch.answered), "corrections": list(batch.corrections.values()), "replaced": 0}
    )
    left = [
        seen
        for item in batch.items
        if item.item_id not in batch.answered and (seen := show_item(services, batch, item))
    ]
    if action == "failed" and left:
        batch = services.store.judging.allow_without_form(batch.id)
        result = _given_out(services, batch, left)
        note = f"The client could not show a form. {result.next_step}"
        return result.model_copy(update={"submitted": came_of_it(services, batch, done), "next_step": note})
    submitted = came_of_it(services, batch, done)
    again = f"get_judging_batch(judge='person', mode={batch.mode!r}, limit=..., rater={batch.rater!r})"
    scorer = "export_dataset(kind='dpo', pairs='recorded')" if batch.mode in _ORDERS else _READ.format("people")
    told = (
        f"Not taken: {', '.join(str(one.item_id) for one in done.rejected)}, see `rejected`. " if done.rejected else ""
    )
    if submitted.remaining:
        why = "The person stopped" if action in {"decline", "cancel"} else "The round is over"
        step = f"{why}, {counted(len(submitted.remaining), 'item')} open. When they want to go on: {again}. {scorer} uses them."
    elif len(batch.answered) == len(batch.items):
        step = f"All {counted(len(batch.items), 'item')} answered. {scorer} uses the answers; more: {again}."
    else:
        step = f"{counted(len(batch.answered), 'item')} answered; no other can be judged any more. More: {again}."
    step = f"{told}{step}"
    # Nobody else answers what a person was asked in a form: the answer inside points to the same step.
    submitted = submitted.model_copy(update={"next_step": step})
    return JudgingBatchResult(
        batch_id=batch.id, rater=batch.rater, submitted=submitted, agreement=submitted.agreement, next_step=step
    )


def came_of_it(services: Services, batch: JudgingBatch, done: Submitted) -> SubmitResult:
    """What became of some answers, as they are told."""
    waiting = [item for item in batch.items if item.item_id not in batch.answered]
    remaining = tuple(item.item_id for item in waiting if show_item(services, batch, item) is not None)
    gone = [item.item_id for item in waiting if item.item_id not in remaining]
    told = {one.item_id for one in done.rejected}
    changed = [f"{name}: {RUN_CHANGED.format(name)}" for name in gone if name not in told]
    return SubmitResult(
        batch_id=batch.id,
        accepted=len(done.accepted),
        rejected=tuple(done.rejected),
        replaced=done.replaced,
        remaining=remaining,
        corrections=tuple(dict.fromkeys(done.corrections)),
        warnings=tuple([*done.warnings, *changed][:_WARNINGS]),
        agreement=_agreement(services, batch.rater),
        next_step=_after(batch, done, remaining, gone),
    )


_READ = "score_trajectories(scorer={!r}, ...)"
_ORDERS = frozenset({"pairwise", "group"})
"""Modes whose answers are preferences."""


def _after(batch: JudgingBatch, done: Submitted, remaining: Sequence[str], gone: Sequence[str]) -> str:
    again = [one for one in done.rejected if one.item_id not in gone and one.item_id not in batch.forms]
    if again:
        return "Correct the rejected answers by their reasons and submit those items again; the others are stored."
    if any(one.item_id in batch.forms for one in done.rejected):
        return "What a person was asked in a form only they answer: get_judging_batch(judge='person') asks them."
    open_ones = [name for name in remaining if name not in batch.forms]
    if open_ones:
        return f"{counted(len(open_ones), 'item')} open: submit {', '.join(open_ones[:5])} too, or leave them."
    if gone:
        return (
            f"{', '.join(gone[:5])} can no longer be judged in this batch: get_judging_batch gives out what there is now. The "
            "other answers are stored."
        )
    if batch.mode in _ORDERS:
        return "All answered. export_dataset(kind='dpo', pairs='recorded') makes pairs of them; get_judging_batch has more."
    read = _READ.format("people" if batch.judge == "person" else "judge")
    return f"All answered. {read} reads the values; get_judging_batch has more."


def _agreement(services: Services, rater: str) -> Agreement | None:
    batches = [batch for batch in services.store.judging.newest(_BATCHES) if batch.rater == rater]
    return agreement(services, batches, rater)


def _found(services: Services, batch_id: str) -> JudgingBatch:
    try:
        return services.store.judging.get(batch_id)
    except NotFound as error:
        message = error.message.rpartition(";")[0]
        raise NotFound(f"{message}; get_judging_batch gives out a new one") from None
