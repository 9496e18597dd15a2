"""Answers as they are stored: preferences between the runs of an item, and corrections of one step of a run.

A correction becomes a new run: the original up to that step, none of which is trained on, and then the better step, which
is. It goes on from the original (`continues`), so lineage shows both ways, and forgetting the original names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from quintain.checkers.json_schemas import schema_fault
from quintain.errors import InvalidInput
from quintain.records.labels.judging import BatchItem, JudgingBatch, Vote
from quintain.records.labels.preference import Preference, PreferenceSource
from quintain.records.protocols import tool_function
from quintain.records.record import Record, require_number
from quintain.records.tags import CORRECTION, LIVE, REPLACED
from quintain.records.trajectory import Action, Actor, AgentInfo, Outcome, Source, Step, Trajectory, text_of
from quintain.records.wording import explain, nearest
from quintain.scoring.calibration.agreement import flipped
from quintain.scoring.judges.answer_parsing import read_preference, read_ranking
from quintain.tools.labels.judging.batches import ShownItem
from quintain.tools.labels.judging.results import AnswerContext, Submission
from quintain.tools.services import Services

MAX_CHARS = 20_000
"""Characters of a correction, as JSON."""


class Correction(Record):
    """The right action of the agent at one of its steps."""

    step: Annotated[int, Field(ge=0), BeforeValidator(require_number)]
    thought: str | None = None
    actions: tuple[Action, ...] = ()
    message: str = ""


def read_correction(value: Any) -> Correction:
    """Check a correction from outside.

    Raises:
        InvalidInput: the correction has an invalid field, or is empty.
    """
    if not isinstance(value, dict):
        raise InvalidInput(f"correction is {type(value).__name__}; {_SHAPE}")
    if (size := len(json.dumps(value, ensure_ascii=False, default=str))) > MAX_CHARS:
        raise InvalidInput(
            f"correction has {size:,} characters, at most {MAX_CHARS:,}; correct one step, by what the agent should have "
            "written there",
            code="too_large",
        )
    try:
        correction = Correction.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(f"{explain(error, 'correction', Correction.model_fields)}; {_SHAPE}") from None
    if not correction.actions and not correction.message.strip():
        raise InvalidInput(f"correction has neither `actions` nor `message`; {_SHAPE}")
    return correction


_SHAPE = 'a correction is {"step": N, "thought": ..., "actions": [{"tool": ..., "args": {...}}] or "message": ...}'


def corrected_run(run: Trajectory, correction: Correction, rater: str) -> Trajectory:
    """The run up to a step, and then what the agent should have done there, by tools that it had."""
    places = run.agent_places
    if correction.step >= len(places):
        raise InvalidInput(
            f"correction.step is {correction.step}; the run has {len(places)} agent steps, valid: 0..{len(places) - 1}"
        )
    place = places[correction.step]
    old = run.steps[place]
    if old.copied_context or old.extra.get("acted") is False:
        raise InvalidInput(
            f"expected a step that the agent took here as correction.step, got {correction.step}; correct another one"
        )
    _require_known_tools(run, correction)
    _require_fitting_args(run, correction)
    better = Step(
        actor=Actor.AGENT,
        thought=correction.thought or None,
        message=correction.message,
        actions=correction.actions,
        train=True,
    )
    if _written(better) == _written(old) or (better.thought is None and _written(better)[1:] == _written(old)[1:]):
        raise InvalidInput(
            f"expected another step than the agent took, got the same as step {correction.step}; leave the correction out, or change it"
        )
    before = [
        step.model_copy(update={"train": False}) if step.actor is Actor.AGENT else step for step in run.steps[:place]
    ]
    return Trajectory(
        # Its own key: neither an equal run of an agent nor an earlier state of the original's session is the same thing.
        episode_key=f"correction:{run.id}",
        source=Source(format=CORRECTION),
        agent=AgentInfo(name=rater),
        task=run.task,
        tools=run.tools,
        steps=(*before, better),
        outcome=Outcome(),
        # Whoever selects the runs of an experiment finds the corrections of them too.
        tags=(CORRECTION, *(tag for tag in run.tags if tag not in {CORRECTION, REPLACED, LIVE})),
        redactions=run.redactions,
        redaction=run.redaction,
        continues=run.id,
        extra={CORRECTION: {"of": run.id, "step": correction.step, "rater": rater}},
    )


def known_tools(run: Trajectory) -> list[str]:
    """The tools that the agent had: by their schemas, or, where there are none, those that it called."""
    named = [name for tool in run.tools if isinstance(name := tool_function(tool).get("name"), str)]
    return list(dict.fromkeys(named or (action.tool for step in run.agent_steps for action in step.actions)))


def _require_known_tools(run: Trajectory, correction: Correction) -> None:
    known = known_tools(run)
    if correction.actions and not known:
        raise InvalidInput(
            "the run names no tools and calls none, so the tools of its agent are unknown; correct it with "
            "`message`, in the form that the run itself uses",
            code="unknown_tool",
        )
    unknown = [action.tool for action in correction.actions if action.tool not in known]
    if unknown:
        raise InvalidInput(
            f"the agent had no tool {unknown[0]!r}{nearest(unknown[0], known)}; valid: {', '.join(known[:50])}",
            code="unknown_tool",
        )


def _require_fitting_args(run: Trajectory, correction: Correction) -> None:
    """Refuse arguments that do not fit their tool's schema, where it can be used."""
    schemas = {str(one.get("name")): one.get("parameters") for one in map(tool_function, run.tools)}
    for place, action in enumerate(correction.actions):
        schema = schemas.get(action.tool)
        if isinstance(schema, Mapping) and (fault := schema_fault(schema, action.args or {})):
            raise InvalidInput(
                f"correction.actions[{place}] does not fit {action.tool}: {fault}; correct its `args`",
                code="bad_arguments",
            )


def store_correction(services: Services, better: Trajectory, preference: Preference) -> str:
    """Store a corrected run, and that its last step is better than the one that the agent took.

    An earlier correction of the same step by the rater is replaced.

    `preference` lacks the id of the corrected run in `a`.
    """
    now = services.clock()
    (added,) = services.store.trajectories.add_many([better], now)
    earlier = [
        one
        for one in corrections_of(services, preference.b, preference.rater)
        if one.step == preference.step and one.chosen != added.id
    ]
    withdraw(services, earlier)
    services.store.preferences.add_many([preference.model_copy(update={"a": added.id})], now)
    # The same correction may have been replaced before, and counts again now.
    _mark(services, added.id, is_replaced=False)
    return added.id


def corrections_of(services: Services, run_id: str, rater: str | None = None) -> list[Preference]:
    """Return the preferences from corrections of a run; with `rater`, only theirs."""
    found = services.store.preferences.involving([run_id], sources=("person", "assistant"))
    named = [one for one in found if _is_of_correction(one, one.chosen) and rater in {None, one.rater}]
    runs = services.store.trajectories.iterate(ids=[one.chosen or "" for one in named])
    corrected_runs = {run.id for run in runs if run.source.format == CORRECTION and run.continues == run_id}
    return [one for one in named if one.chosen in corrected_runs]


def _is_of_correction(one: Preference, chosen: str | None) -> bool:
    return one.reason.startswith(REASON) and one.step is not None and chosen is not None and one.chosen == chosen


REASON = "correction"
"""Beginning of the reason of a preference from a correction."""


def withdraw(services: Services, preferences: Iterable[Preference]) -> None:
    """Withdraw corrections: remove their preferences, and tag runs without any other as replaced."""
    gone = list(preferences)
    services.store.preferences.withdraw({one.id for one in gone if one.id})
    for run_id in {one.chosen for one in gone if one.chosen}:
        others = services.store.preferences.involving([run_id])
        if not any(_is_of_correction(one, run_id) for one in others):
            _mark(services, run_id, is_replaced=True)


def _mark(services: Services, run_id: str, *, is_replaced: bool) -> None:
    def change(run: Trajectory) -> Trajectory:
        tags = [tag for tag in run.tags if tag != REPLACED]
        return run.model_copy(update={"tags": (*tags, REPLACED) if is_replaced else tuple(tags)})

    if (REPLACED in services.store.trajectories.get(run_id).tags) != is_replaced:
        services.store.trajectories.grow(run_id, change, services.clock())


def _written(step: Step) -> tuple[object, ...]:
    calls = [(action.tool, action.raw_args if action.args is None else action.args) for action in step.actions]
    return (step.thought or "").strip(), text_of(step.message).strip(), calls


def withdraw_preferences(context: AnswerContext, item: BatchItem) -> None:
    """Withdraw the preferences of a skipped item; the answer on the same runs in the other order stays."""
    batch, store = context.batch, context.services.store.preferences
    if item.item_id not in batch.answered and item.item_id not in context.done.accepted:
        return
    if batch.mode == "group":
        _withdraw_on(context, item.trajectory_ids)
        return
    if _last_vote(context, item.item_id) is None:
        return
    context.done.votes[item.item_id] = None
    _withdraw_on(context, item.trajectory_ids)
    other = _swapped(batch, item)
    if other and (vote := _last_vote(context, other)) is not None:
        a, b = item.trajectory_ids
        store.add_many([_compared_runs(context, a, b, flipped(vote), "")], context.services.clock())


def _last_vote(context: AnswerContext, item_id: str) -> Vote | None:
    """Return the newest vote on an item, unless it was withdrawn."""
    if item_id in context.done.votes:
        return context.done.votes[item_id]
    return next(reversed(context.batch.votes.get(item_id, ())), None)


def source_of(batch: JudgingBatch) -> PreferenceSource:
    """Return the source of the preferences of this batch."""
    return "person" if batch.judge == "person" else "assistant"


def store_preferences(
    context: AnswerContext, shown_item: ShownItem, submission: Submission, warnings: list[str]
) -> None:
    """Store the preferences in an answer."""
    item, reason = shown_item.item, submission.rationale or ""
    if context.batch.mode == "group":
        preferences = _of_ranking(context, item, _ranking(shown_item, submission), reason)
    else:
        vote = _vote_of(shown_item, submission)
        preferences = [_compared(context, item, vote, reason, warnings)]
        context.done.votes[item.item_id] = vote
    context.services.store.preferences.add_many(preferences, context.services.clock())


def _withdraw_on(context: AnswerContext, ids: Sequence[str]) -> None:
    """Withdraw the rater's preferences on these runs by this rubric."""
    batch, store = context.batch, context.services.store.preferences
    store.withdraw(
        {
            one.id
            for one in store.among(ids)
            if one.rater == batch.rater and one.step is None and one.rubric == batch.rubric.name and one.id
        }
    )


def _compared(context: AnswerContext, item: BatchItem, vote: Vote, reason: str, warnings: list[str]) -> Preference:
    """Return the preference on a pair: a tie where the answers to both orders contradict (Zheng et al. 2023, 3.4)."""
    batch, (a, b) = context.batch, item.trajectory_ids
    other = _swapped(batch, item)
    other_vote = _last_vote(context, other) if other else None
    if other_vote is not None and other_vote != flipped(vote):
        warnings.append(f"contradicts {other}, which shows the same runs in the other order: the pair counts as a tie")
        return _compared_runs(context, a, b, "tie", f"the answers to both orders contradict. {reason}".strip())
    preference = _compared_runs(context, a, b, vote, reason)
    if other_vote is None and item.item_id not in batch.answered:
        before = (known for known in context.services.store.preferences.among([a, b]) if known.rater == batch.rater)
        if any(known.step is None and known.chosen != preference.chosen for known in before):
            warnings.append("another batch has another answer of this rater on the same runs; the newest counts")
    return preference


def _vote_of(shown_item: ShownItem, submission: Submission) -> Vote:
    """Which place the answer prefers."""
    document = {"better": submission.better, "quotes": submission.quotes}
    read = read_preference(document, [view.passages for view in shown_item.views])
    if read.failed is not None:
        raise InvalidInput(f"{read.failed}; correct it and submit the item again")
    return read.better


def _swapped(batch: JudgingBatch, item: BatchItem) -> str | None:
    """The item that shows the same runs in the other order, if there is one."""
    if item.repeats is not None:
        return item.repeats
    return next((other.item_id for other in batch.items if other.repeats == item.item_id), None)


def _ranking(shown_item: ShownItem, submission: Submission) -> tuple[tuple[int, ...], ...]:
    document = {"ranking": submission.ranking, "quotes": submission.quotes}
    read = read_ranking(document, len(shown_item.runs), [view.passages for view in shown_item.views])
    if read.failed is not None:
        raise InvalidInput(f"{read.failed}; correct it and submit the item again")
    return read.places


def _of_ranking(
    context: AnswerContext, item: BatchItem, ranking: Sequence[Sequence[int]], reason: str
) -> list[Preference]:
    """Return a preference on every two runs of a group; those that share a place are ties."""
    ids = item.trajectory_ids
    place = {run: rank for rank, runs in enumerate(ranking) for run in runs}
    found: list[Preference] = []
    for one, other in combinations(range(len(ids)), 2):
        better: Vote = "tie" if place[one] == place[other] else "a" if place[one] < place[other] else "b"
        found.append(_compared_runs(context, ids[one], ids[other], better, reason))
    return found


def _compared_runs(context: AnswerContext, a: str, b: str, better: Vote, reason: str) -> Preference:
    batch = context.batch
    return Preference(
        a=a,
        b=b,
        better=better,
        source=source_of(batch),
        rater=batch.rater,
        rubric=batch.rubric.name,
        reason=context.note(reason),
    )
