"""Judging by the assistant that is connected, or by the person in front of it: a batch is given out, answers come back."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from quintain.errors import InvalidInput, NotFound
from quintain.next_step import Hint, call
from quintain.records.filters import TrajectoryFilter
from quintain.records.labels.judging import Judge, JudgingBatch, JudgingMode
from quintain.records.record import Seed
from quintain.records.tags import tag_error
from quintain.records.wording import counted
from quintain.scoring.judges.questions import instructions
from quintain.tools.catalog import Answer, Question
from quintain.tools.labels.judging.agreement import agreement
from quintain.tools.labels.judging.answers import run_changed, store_answers
from quintain.tools.labels.judging.batches import (
    BatchRequest,
    Choice,
    ShownItem,
    choose,
    fill,
    mark_of_batch,
    show_item,
)
from quintain.tools.labels.judging.forms import (
    RoundState,
    answer_instruction,
    first_question,
    judging_items,
    next_question,
)
from quintain.tools.labels.judging.results import (
    Agreement,
    AnswerSource,
    JudgingBatchResult,
    SubmissionReport,
    SubmitResult,
)
from quintain.tools.labels.scorer_resolution import find_rubric, name_shared
from quintain.tools.run_selection import RunFilter, RunIds, explain_no_runs, short_schema
from quintain.tools.services import Services

ROUNDS = 8
"""Forms in one call: clients end a call of more than ten rounds, and people tire."""

_BATCHES = 500
"""Number of newest batches that agreement of raters is computed on."""
_WARNINGS = 20


_RUBRIC = "Name, or {name, criteria[]}."
_BatchId = Annotated[str, Field(description="From get_judging_batch.")]
_Answers = Annotated[
    list[Any],
    Field(min_length=1, max_length=200, description="One answer an item, as it asks, or {item_id, skip: why}."),
    short_schema("array", items={"type": "object", "maxProperties": 20}, maxItems=200),
]


def get_judging_batch(
    services: Services,
    limit: Annotated[int, Field(ge=1, le=50, description="Items at most; some come twice.")],
    judge: Annotated[Judge, Field(description="You or the person.")] = "assistant",
    mode: Annotated[JudgingMode, Field(description="What to judge.")] = "score",
    rubric: Annotated[str | dict[str, Any] | None, Field(description=_RUBRIC)] = None,
    filter: Annotated[RunFilter, Field(description="Of which runs.")] = None,
    trajectory_ids: Annotated[
        RunIds,
        Field(description="The same, by id."),
        short_schema("array", items={"type": "string"}, maxItems=10_000),
    ] = None,
    rater: Annotated[str | None, Field(description="Their name.")] = None,
    seed: Annotated[Seed, Field(description="Of the choice."), short_schema("integer")] = 0,
) -> JudgingBatchResult:
    """Give out runs to judge blind by a rubric; answer with submit_scores. pairwise, group: runs of a task.

    `judge='person'` asks in forms; where there are none, show the person the items.
    """
    request = _wanted(
        services, limit, judge, mode, rubric, rater=rater, seed=seed, filter=filter, trajectory_ids=trajectory_ids
    )
    shared = name_shared(services, request.rubric)
    batch, shown, choice, fewer = _new_batch(services, request)
    counts = f"{len(shown)} of {counted(limit, 'item')}: {fewer}." if fewer else ""
    notice = " ".join(text for text in (counts, shared) if text)
    return _given_out(services, batch, shown, notice) if shown else _nothing(services, request, choice)


def submit_scores(services: Services, batch_id: _BatchId, scores: _Answers) -> SubmitResult:
    """Store answers to a judging batch: {item_id, scores{criterion: 0..1} | steps | better | ranking, rationale}.

    Of one run also `outcome`, if known, and `correction` {step, thought, actions[] or message}: what the agent should have
    done; it becomes a run to learn from and a preference.
    """
    return _submitted(services, batch_id, scores, "tool")


def submit_own_scores(services: Services, batch_id: _BatchId, scores: _Answers) -> SubmitResult:
    """Store answers as `submit_scores` does, from the terminal, the web page or Python: the rater's own, and not relayed."""
    return _submitted(services, batch_id, scores, "operator")


def _submitted(services: Services, batch_id: str, scores: Sequence[Any], by: AnswerSource) -> SubmitResult:
    try:
        batch = services.store.judging.get(batch_id)
    except NotFound as error:
        raise NotFound(Hint(error.message, "; ", call("get_judging_batch", limit=5), " makes a new one")) from None
    done = store_answers(services, batch, scores, by=by)
    return submit_result(services, services.store.judging.get(batch_id), done)


def ask_person(services: Services, answer: Answer | None, **arguments: Any) -> JudgingBatchResult | Question | None:
    """Return the next form for a person, at last the result; None: the assistant shall judge, and nobody is asked.

    Every answer is stored at once, so that one who stops has lost nothing. Without an answer the first question is asked.
    The other arguments are those of `get_judging_batch`.
    """
    if arguments.get("judge") != "person":
        return None
    if answer is None:
        request = _wanted(services, **{**arguments, "limit": min(arguments["limit"], ROUNDS)})
        batch, shown, choice, _ = _new_batch(services, request, forms=True)
        return first_question(batch, shown) if shown else _nothing(services, request, choice)
    place = RoundState.model_validate_json(answer.state)
    asked = next_question(services, services.store.judging.get(place.batch), place, answer)
    if isinstance(asked, Question):
        return asked
    result = _ended(services, asked, answer.action)
    if arguments["limit"] <= ROUNDS:
        return result
    return result.model_copy(update={"notice": f"A person is asked at most {ROUNDS} items in one call."})


def _wanted(
    services: Services,
    limit: int,
    judge: Judge = "assistant",
    mode: JudgingMode = "score",
    rubric: str | dict[str, Any] | None = None,
    *,
    rater: str | None = None,
    seed: int = 0,
    filter: TrajectoryFilter | None = None,
    trajectory_ids: Sequence[str] | None = None,
) -> BatchRequest:
    """Return the requested batch with rubric and rater resolved."""
    name = (rater or "").strip().removeprefix(f"{judge}:")
    if name and (fault := tag_error(name)):
        raise InvalidInput(f"rater {fault.replace('a tag', 'a name')}")
    return BatchRequest(
        id=f"batch-{uuid.uuid4().hex[:10]}",
        judge=judge,
        rater=judge if name in {"", judge} else f"{judge}:{name}",
        mode=mode,
        rubric=find_rubric(services, rubric, mode),
        limit=limit,
        seed=seed,
        filter=filter,
        ids=None if trajectory_ids is None else tuple(trajectory_ids),
    )


def _new_batch(
    services: Services, request: BatchRequest, *, forms: bool = False
) -> tuple[JudgingBatch, list[ShownItem], Choice, str]:
    """Return a new batch, its items, what they were chosen from, and why they are fewer than requested.

    A batch without items is not stored.
    """
    choice = choose(services, request)
    shown, fewer = fill(services, request, choice.items)
    batch = JudgingBatch(
        id=request.id,
        judge=request.judge,
        rater=request.rater,
        mode=request.mode,
        rubric=request.rubric,
        items=tuple(one.item for one in shown),
        forms=tuple(one.item.item_id for one in shown) if forms else (),
    )
    return (services.store.judging.add(batch, services.clock()) if shown else batch), shown, choice, fewer


def _nothing(services: Services, request: BatchRequest, choice: Choice) -> JudgingBatchResult:
    """Return why there is nothing to judge, and the remedy."""
    runs = "pairs or groups of runs of one task that differ" if request.mode in _ORDERS else "runs"
    if not choice.matching and request.ids is not None:
        lineage, search = call("get_lineage", id=request.ids[0]), call("search_trajectories")
        why = Hint(
            "all of these runs were forgotten, ", lineage, " shows what they had touched; name others, from ", search
        )
    elif not choice.matching:
        why = explain_no_runs(services, request.filter or TrajectoryFilter())
    elif choice.matching == choice.corrections + choice.open:
        why = Hint(
            f"of {counted(choice.matching, 'run')} that match {choice.corrections} are corrections, which are judged only where "
            f"filter.tags names 'correction' and nobody replaced them, and {choice.open} are still being recorded; close them "
            "with ",
            call("record_trajectory", trajectory_id=..., live="close"),
        )
    else:
        why = Hint(
            f"{request.rater!r} has judged all {runs} by rubric {request.rubric.name!r}, of {counted(choice.matching, 'run')} that "
            "match; loosen the selection, or take another rubric, mode or rater"
        )
    step = Hint("Nothing to judge: ", why, ".")
    return JudgingBatchResult(
        batch_id=None, rater=request.rater, agreement=_agreement(services, request.rater), next_step=step
    )


def _given_out(
    services: Services, batch: JudgingBatch, shown: Sequence[ShownItem], notice: str = ""
) -> JudgingBatchResult:
    return JudgingBatchResult(
        batch_id=batch.id,
        rater=batch.rater,
        instructions=instructions(
            batch.mode, batch.rubric, None if batch.judge == "person" else mark_of_batch(batch.id)
        ),
        rubric=batch.rubric,
        items=judging_items(batch, shown),
        notice=notice,
        agreement=_agreement(services, batch.rater),
        next_step=_how_to_submit(batch, answer_instruction(batch, shown[0])),
    )


def _how_to_submit(batch: JudgingBatch, answer: str) -> Hint:
    submit = call("submit_scores", batch_id=batch.id, scores=...)
    shape = f"each answer like {answer}"
    more = ' Where an item cannot be judged: {"item_id": ..., "skip": "why"}.'
    if batch.mode in {"score", "steps"}:
        more += ' What the agent should have done at a step: "correction": {"step": N, "actions": [{"tool", "args"}]}.'
    if batch.judge == "person":
        return Hint(
            "Show the person each item with the rubric in plain words, and submit their answers, not your own: ",
            submit,
            f', {shape}.{more} Add "outcome" where they know how the run ended.',
        )
    return Hint("Judge each item by itself, then ", submit, f", {shape}.{more}")


def _ended(services: Services, state: RoundState, action: str) -> JudgingBatchResult:
    """Return the result of a person's round; where no form could be shown, the open items as text."""
    batch = services.store.judging.get(state.batch)
    # Counted from what is stored: a client may repeat its last request.
    done = SubmissionReport(
        accepted=list(batch.answered),
        rejected=list(state.rejected),
        corrections=list(batch.corrections.values()),
        warnings=list(state.warnings),
    )
    shown = (show_item(services, batch, item) for item in batch.items if item.item_id not in batch.answered)
    left = [item for item in shown if item is not None]
    if action == "failed" and left:
        batch = services.store.judging.allow_without_form(batch.id)
        result = _given_out(services, batch, left)
        note = Hint("The client could not show a form. ", result.next_step)
        return result.model_copy(update={"submitted": submit_result(services, batch, done), "next_step": note})
    submitted = submit_result(services, batch, done)
    return JudgingBatchResult(
        batch_id=batch.id,
        rater=batch.rater,
        submitted=submitted,
        agreement=submitted.agreement,
        next_step=submitted.next_step,
    )


def submit_result(services: Services, batch: JudgingBatch, done: SubmissionReport) -> SubmitResult:
    """Return the result of storing some answers."""
    waiting = [item for item in batch.items if item.item_id not in batch.answered]
    remaining = tuple(item.item_id for item in waiting if show_item(services, batch, item) is not None)
    gone = [item.item_id for item in waiting if item.item_id not in remaining]
    rejected = {one.item_id for one in done.rejected}
    changed = [Hint(f"{name}: ", run_changed(name)) for name in gone if name not in rejected]
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


_ORDERS = frozenset({"pairwise", "group"})
"""Modes whose answers are preferences."""


def _after(batch: JudgingBatch, done: SubmissionReport, remaining: Sequence[str], gone: Sequence[str]) -> Hint:
    own = {} if batch.rater == batch.judge else {"rater": batch.rater}
    more = call("get_judging_batch", limit=5, judge=batch.judge, mode=batch.mode, rubric=batch.rubric.name, **own)
    refused = [str(one.item_id) for one in done.rejected]
    if any(name not in gone and name not in batch.forms for name in refused):
        others = "; the others are stored" if done.accepted else ""
        return Hint(f"Correct the rejected answers by their reasons and submit those items again{others}.")
    rejected = f"Rejected: {', '.join(refused)}, each with its reason. " if refused else ""
    if open_ones := [name for name in remaining if name not in batch.forms]:
        return Hint(f"{counted(len(open_ones), 'item')} open: submit {', '.join(open_ones[:5])} too, or leave them.")
    if remaining:
        open_items = counted(len(remaining), "item")
        return Hint(f"{rejected}{open_items} open, which only the person answers: ", more, " asks them.")
    if gone:
        names = ", ".join(gone[:5])
        others = " The other answers are stored." if batch.answered else ""
        return Hint(f"{names} can no longer be judged in this batch: ", more, f" makes a new one.{others}")
    use, what = call("score_trajectories", scorer="people" if batch.judge == "person" else "judge", filter=...), "reads"
    if batch.mode in _ORDERS:
        use, what = call("export_dataset", kind="dpo", name="pairs", pairs="recorded", filter=...), "makes pairs of"
    learn: list[Hint | str] = []
    if made := list(dict.fromkeys(batch.corrections.values())):
        ends = ["success", "unknown"]  # a corrected run ends at the corrected step
        data = call("export_dataset", kind="sft", name="corrected", trajectory_ids=made, outcomes=ends)
        learn = [Hint(data, f" makes a dataset of {counted(len(made), 'corrected run')}; ")]
    return Hint(f"{rejected}All answered. ", use, f" {what} the answers; ", *learn, more, " has more.")


def _agreement(services: Services, rater: str) -> Agreement | None:
    batches = [batch for batch in services.store.judging.newest(_BATCHES) if batch.rater == rater]
    return agreement(services, batches, rater)
