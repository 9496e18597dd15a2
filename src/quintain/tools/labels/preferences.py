"""Preferences: which of two runs of a task is better, as stated by people and assistants, or mined from values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from quintain.datasets.selection import (
    Criteria,
    ExportCounts,
    ValuedRun,
    agent_digest,
    comparison_key,
    drop_remedy,
    filter_runs,
)
from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.dataset import Number
from quintain.records.labels.preference import Preference
from quintain.records.record import Name, Record, require_number
from quintain.records.tags import is_open
from quintain.records.trajectory import PAIR_MARK, Trajectory
from quintain.records.wording import counted, explain, shown
from quintain.scoring.preferences.consensus import circles, disagreements
from quintain.scoring.preferences.forks import Fork, fork_step, mine_forks, path_of
from quintain.scoring.preferences.mining import Candidate, gap, mine_pairs
from quintain.tools.data.dataset_folders import logged_margin, with_runs
from quintain.tools.labels.scorer_resolution import full_scorer_name, runs_with_values, verdict
from quintain.tools.results import PreferencesResult, Skipped
from quintain.tools.run_selection import RunFilter, select, short_schema
from quintain.tools.services import Services

Mode = Literal["outside_in", "adjacent", "all_pairs", "best_worst", "forks"]
Source = Literal["mined", "person", "assistant", "imported"]

_EXAMPLE = {"id", "a", "b", "better", "step", "margin"}
_SHOWN = 5
_NOTES = 20
_LIMIT = 100
"""Pairs of one task, unless asked otherwise."""

_PAIR_FORM = "a pair is {a, b, better: a | b | tie} or {chosen, rejected}, by trajectory ids, and step, margin, reason if you like"


class StatedPair(Record):
    """A pair as a client states it."""

    a: str | None = None
    b: str | None = None
    better: Literal["a", "b", "tie"] | None = None
    chosen: str | None = None
    rejected: str | None = None
    step: int | None = Field(default=None, ge=0, strict=True)
    margin: float | None = Field(default=None, ge=0, strict=True)
    reason: str = Field(default="", max_length=2000)
    rater: Name | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> StatedPair:
        named = self.a is not None and self.b is not None and self.better is not None
        sided = self.chosen is not None and self.rejected is not None
        either = self.a or self.b or self.better
        if named == sided or (sided and either) or (named and (self.chosen or self.rejected)):
            raise ValueError(_PAIR_FORM)
        if self.sides[0] == self.sides[1]:
            raise ValueError("a run cannot be preferred to itself; give two runs of one task")
        return self

    @property
    def sides(self) -> tuple[str, str]:
        """The ids of the two runs; a chosen run comes first."""
        return (self.chosen or self.a or "", self.rejected or self.b or "")

    def preference(self, source: Source) -> Preference:
        """Return the pair as a record."""
        a, b = self.sides
        rater = source if self.rater is None else f"{source}:{self.rater}"
        more = self.model_dump(include={"step", "margin", "reason"})
        return Preference(a=a, b=b, better=self.better or "a", source=source, rater=rater, **more)


_PAIR = {"type": "object", "maxProperties": len(StatedPair.model_fields)}


@dataclass
class PreferenceBatch:
    """The outcome of a call: preferences to store, and skipped input with its reasons."""

    preferences: list[Preference] = field(default_factory=list)
    faults: dict[int, Hint] = field(default_factory=dict)
    """Of stated pairs: place -> why it is skipped; each of the others has one preference, in their order."""
    skipped: Counter[str] = field(default_factory=Counter)
    details: dict[str, Hint] = field(default_factory=dict)
    """Reason -> remedy, or the first case of it."""
    outdated: list[Preference] = field(default_factory=list)
    """Stored preferences that current values contradict."""
    warnings: list[str] = field(default_factory=list)

    def skip(self, reason: str, detail: str, n: int = 1) -> None:
        """Count skipped input; the first detail of each reason is kept."""
        self.skipped[reason] += n
        self.details.setdefault(reason, Hint(detail))

    def skip_pair(self, place: int, reason: str, detail: str) -> None:
        """Count a stated pair that is skipped, and keep why."""
        self.faults[place] = Hint(detail)
        self.skip(reason, Hint(f"pairs[{place}]: ", detail))


def record_preferences(
    services: Services,
    source: Annotated[Source, Field(description="Whose word.")],
    pairs: Annotated[
        list[Any] | None,
        Field(
            max_length=10_000,
            description="[{a, b, better: a|b|tie} or {chosen, rejected}], and step, reason, rater.",
        ),
        short_schema("array", items=_PAIR, maxItems=10_000),
    ] = None,
    filter: Annotated[RunFilter, Field(description="Runs.")] = None,
    trajectory_ids: Annotated[list[str] | None, Field(description="By id.")] = None,
    scorer: Annotated[str | None, Field(description="(outcome)")] = None,
    mode: Annotated[Mode | None, Field(description="(outside_in)")] = None,
    margin: Annotated[Number | None, Field(description="(0)")] = None,
    max_pairs_per_task: Annotated[int | None, Field(description="(100)"), BeforeValidator(require_number)] = None,
    ties: Annotated[bool | None, Field(description="Ties too.")] = None,
) -> PreferencesResult:
    """Store which of two runs of a task is better, for export_dataset(pairs='recorded')."""
    mining = {"scorer": scorer, "mode": mode, "margin": margin, "max_pairs_per_task": max_pairs_per_task, "ties": ties}
    _require(source, pairs, mining, selects=filter is not None or trajectory_ids is not None)
    if source in {"person", "assistant"}:
        batch = stated_pairs(services, source, pairs or [])
    elif source == "imported":
        batch = _imported(services, select(services, filter, trajectory_ids))
    else:
        runs = select(services, filter, trajectory_ids)
        worth = full_scorer_name(services, scorer or "outcome", filter, trajectory_ids)
        mining["scorer"] = worth.name
        batch = _mined(services, runs, {name: value for name, value in mining.items() if value is not None})
        batch.warnings += worth.warnings
    if gone := services.store.lineage.forgotten(list(dict.fromkeys(trajectory_ids or ()))):
        batch.skip("forgotten", drop_remedy("forgotten"), len(gone))
    return store_pairs(services, source, batch)


def _require(source: str, pairs: Sequence[Any] | None, mining: Mapping[str, Any], *, selects: bool) -> None:
    """Refuse arguments that do not fit the source."""
    stated = source in {"person", "assistant"}
    if stated and not pairs:
        raise InvalidInput(f"expected `pairs` for source {source!r}, got none; give them: {_PAIR_FORM}")
    if stated and selects:
        raise InvalidInput("`pairs` names its runs; leave `filter` and `trajectory_ids` out")
    if not stated and pairs is not None:
        raise InvalidInput(f"`pairs` is the word of a person or an assistant, and source is {source!r}; leave it out")
    if source != "mined" and (named := [name for name, value in mining.items() if value is not None]):
        raise InvalidInput(f"`{named[0]}` goes with source 'mined', and source is {source!r}; leave it out")


def stated_pairs(services: Services, source: Source, pairs: Sequence[Any]) -> PreferenceBatch:
    """Return the preferences that a person or an assistant states, unstored, and what is skipped."""
    batch = PreferenceBatch()
    stated: list[tuple[int, StatedPair]] = []
    for place, document in enumerate(pairs):
        try:
            stated.append((place, StatedPair.model_validate(document)))
        except ValidationError as error:
            batch.skip_pair(place, "not_a_pair", explain(error, "pair", StatedPair.model_fields))
    known = services.store.preferences.comparable({run for _, pair in stated for run in pair.sides})
    there: list[tuple[tuple[int, StatedPair], tuple[str, ...]]] = []
    for place, pair in stated:
        if gone := [run for run in pair.sides if run not in known]:
            search = call("search_trajectories")
            batch.skip_pair(place, "unknown_run", Hint(f"no stored run {shown(gone[0])}; ", search, " lists them"))
        else:
            there.append(((place, pair), pair.sides))
    for (place, pair), (one, other) in with_runs(services, there):
        if fault := _fault(one, other, pair.step):
            batch.skip_pair(place, *fault)
        else:
            preference = pair.preference(source)
            reason = services.redacted(preference.reason)
            batch.preferences.append(preference.model_copy(update={"reason": reason}))
    return batch


def _imported(services: Services, runs: Iterable[Trajectory]) -> PreferenceBatch:
    """Return the pairs of an imported preference log, whose importer marks both sides."""
    batch = PreferenceBatch()
    sides: dict[str, dict[str, tuple[str, Mapping[str, float]]]] = {}
    for run in runs:
        mark = run.extra.get(PAIR_MARK)
        if isinstance(mark, Mapping) and mark.get("side") in ("chosen", "rejected") and run.id:
            sides.setdefault(str(mark.get("pair")), {})[mark["side"]] = (run.id, run.outcome.scores)
        else:
            batch.skip("no_pair", "these runs were not imported as a side of a pair")
    whole: list[tuple[float | None, tuple[str, ...]]] = []
    for pair in sides.values():
        if len(pair) == 2:
            (chosen, ours), (rejected, theirs) = pair["chosen"], pair["rejected"]
            margin = logged_margin(ours, theirs)
            whole.append((None if margin is None or margin < 0 else margin, (chosen, rejected)))
        else:
            batch.skip("other_side_missing", "the other side of the pair is not among these runs; widen the filter")
    for margin, (one, other) in with_runs(services, whole):
        if fault := _fault(one, other):
            batch.skip(fault[0], fault[1])
        else:
            batch.preferences.append(
                Preference(a=one.id or "", b=other.id or "", better="a", source="imported", margin=margin)
            )
    return batch


def _fault(one: Trajectory, other: Trajectory, step: int | None = None) -> tuple[str, str] | None:
    """Return why two runs cannot be compared, as a reason code and a sentence; None where they can."""
    two = f"{one.id} and {other.id}"
    if opened := [run.id for run in (one, other) if is_open(run)]:
        close = call("record_trajectory", trajectory_id=opened[0], live="close")
        return "still_open", Hint(f"{opened[0]} is still being recorded; close it first: ", close)
    if comparison_key(one) != comparison_key(other):
        return "different_tasks", (
            f"{two} are of different tasks ({shown(one.task.name)}, "
            f"{shown(other.task.name)}), environments or tools; compare runs of one task"
        )
    if step is None:
        same = agent_digest(one) == agent_digest(other)
        return ("equal_sides", f"in {two} the agent wrote the same; there is nothing to prefer") if same else None
    parts_at = fork_step(one, other)
    if parts_at == step:
        return None
    if parts_at is None:
        return "no_shared_prefix", f"{two} never part by what the agent wrote; leave `step` out to compare them whole"
    return "no_shared_prefix", f"{two} part at step {parts_at}, not at step {step}; give that, or none for whole runs"


def _mined(services: Services, runs: Iterable[Trajectory], mining: Mapping[str, Any]) -> PreferenceBatch:
    scorer, mode = mining.get("scorer", "outcome"), mining.get("mode", "outside_in")
    by = None if scorer == "outcome" else scorer
    # The value of a branch is the mean of all its runs, so equal runs count.
    criteria, tally, batch = (
        Criteria(needs_value=True, scorer=by, keep_repeats=mode == "forks"),
        ExportCounts(),
        PreferenceBatch(),
    )
    stay = filter_runs(runs_with_values(services, runs, by, verdict), criteria, tally)
    bounds = {
        "margin": mining.get("margin", 0.0),
        "max_pairs_per_task": mining.get("max_pairs_per_task", _LIMIT),
        "ties": mining.get("ties", False),
    }
    values: dict[str, float] = {}
    known = _remembered(stay, values)
    if mode == "forks":
        paths = (path_of(run, comparison_key(run), value) for run, value in known)
        forks = mine_forks(paths, **bounds)
        left_out = forks.runs_left_out + forks.forks_left_out
        batch.preferences += [_of_fork(fork, scorer) for fork in (*forks.forks, *forks.ties)]
    else:
        candidates = (
            Candidate(
                comparison_key(run),
                run.id or "",
                value,
                agent_digest(run),
                f"{run.agent.name}@{run.agent.version or ''}/{run.agent.model or ''}",
            )
            for run, value in known
        )
        mined = mine_pairs(candidates, mode=mode, **bounds)
        left_out = mined.runs_left_out
        batch.preferences += [
            Preference(a=pair.chosen, b=pair.rejected, better="a", source="mined", scorer=scorer, margin=pair.margin)
            for pair in mined.pairs
        ]
        batch.preferences += [
            Preference(a=tie.a, b=tie.b, better="tie", source="mined", scorer=scorer, margin=0.0) for tie in mined.ties
        ]
    for reason, n in (tally.dropped + left_out).items():
        batch.skip(reason, drop_remedy(reason, criteria, "dpo"), n)
    earlier = [p for p in services.store.preferences.among(values, sources=["mined"]) if p.scorer == scorer]
    batch.outdated += [p for p in earlier if _is_outdated(p, values, forks=mode == "forks")]
    return batch


def _remembered(runs: Iterable[ValuedRun], values: dict[str, float]) -> Iterator[tuple[Trajectory, float]]:
    """Yield the runs of known value and note it in `values`."""
    for run, value, _ in runs:
        if value is not None:
            values[run.id or ""] = value
            yield run, value


def _is_outdated(one: Preference, values: Mapping[str, float], *, forks: bool) -> bool:
    """Whether current values contradict an earlier mined preference; forks were mined anew from these runs."""
    if one.step is not None or forks:
        return forks and one.step is not None
    margin = gap(values[one.a], values[one.b])
    return bool(margin) if one.chosen is None else (margin if one.better == "a" else -margin) <= 0


def _of_fork(fork: Fork, scorer: str) -> Preference:
    values = " against ".join(
        f"{branch.value:.3g} in {counted(branch.runs, 'run')}" for branch in (fork.better, fork.worse)
    )
    return Preference(
        a=fork.better.trajectory_id,
        b=fork.worse.trajectory_id,
        better="a" if fork.margin else "tie",
        source="mined",
        scorer=scorer,
        step=fork.step,
        margin=fork.margin,
        reason=f"after the same beginning: {values}",
    )


def store_pairs(services: Services, source: Source, batch: PreferenceBatch) -> PreferencesResult:
    """Store the preferences of a batch, each in place of its rater's earlier one, and return what changed."""
    store = services.store.preferences
    newest = list({_about(one): one for one in batch.preferences}.values())
    before = store.previous(newest)
    changed = [
        (new, old) for new, old in zip(newest, before, strict=True) if old is not None and old.chosen != new.chosen
    ]
    stored = store.add_many(newest, services.clock())
    withdrawn = store.withdraw({one.id for one in batch.outdated if one.id} - {one.id for one in stored if one.id})
    # One scorer gives an order; only several raters, or one over time, can contradict each other in circles.
    around = [] if source == "mined" else store.connected_to({run for new in stored for run in (new.a, new.b)})
    found = circles(around)
    findings = {
        "replaced": len(changed),
        "unchanged": sum(old is not None for old in before) - len(changed),
        "withdrawn": withdrawn,
        "raters_disagree": disagreements(around),
        "warnings": batch.warnings,
        "circles": [list(circle) for circle in found],
        "changes": [*_reversals(batch.preferences), *_changes(changed)][:_NOTES],
    }
    return PreferencesResult(
        created=before.count(None),
        ties=sum(new.better == "tie" for new in stored),
        skipped=tuple(
            Skipped(reason=reason, count=n, detail=batch.details[reason]) for reason, n in batch.skipped.most_common()
        ),
        findings={name: value for name, value in findings.items() if value},
        examples=tuple(new.model_dump(mode="json", include=_EXAMPLE, exclude_none=True) for new in stored[:_SHOWN]),
        next_step=_next_step(stored, found, batch),
    )


def _about(one: Preference) -> tuple[str, str, int | None, str | None]:
    a, b = sorted((one.a, one.b))
    return a, b, one.step, one.rater


def _reversals(stated: Iterable[Preference]) -> Iterator[str]:
    """Yield sentences about raters who contradict themselves in one call."""
    words: dict[tuple[str, str, int | None, str | None], str] = {}
    for one in stated:
        about, word = _about(one), one.chosen or "a tie"
        if words.setdefault(about, word) != word:
            yield f"{about[0]} and {about[1]}: first {words[about]}, then {word} in one call; the last statement counts"
            words[about] = word


def _changes(changed: Iterable[tuple[Preference, Preference]]) -> Iterator[str]:
    for new, old in changed:
        now, earlier = (one.chosen or "a tie" for one in (new, old))
        yield f"{old.a} and {old.b}: {new.rater or new.source} stated {earlier} before and {now} now; the newer statement counts"


_NOTHING = Hint(
    "no two of these runs are of one task and differ in value; collect more attempts of each task, such as ",
    call("collect_rollouts", agent="starter", environment="quintain/inventory", attempts=8),
    ", or choose other runs: ",
    call("search_trajectories"),
    ".",
)


def _next_step(stored: Sequence[Preference], found: Sequence[tuple[str, ...]], batch: PreferenceBatch) -> Hint:
    runs = sorted({run for one in stored for run in (one.a, one.b)})
    chosen: dict[str, Any] = {"trajectory_ids": runs} if len(runs) <= 10 else {"filter": ...}
    export = call("export_dataset", kind="dpo", name="pairs", pairs="recorded", **chosen)
    if not stored:
        why = (batch.details[reason] for reason, _ in batch.skipped.most_common(1))
        return Hint("Nothing was recorded: ", next(why, _NOTHING))
    if found:
        return Hint("Compare the runs of a circle once more: no order of them fits. Then ", export, ".")
    if all(one.better == "tie" for one in stored):
        return Hint("All of these are ties, which make no pairs; compare other runs of these tasks.")
    return Hint("Freeze them with ", export, " (or kind 'reward').")
