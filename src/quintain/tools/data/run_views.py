"""Views of stored runs: texts cut to a length, stored scores, steps that are not trained on, and pages sorted by a scorer's values."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from quintain.datasets.splits import task_key
from quintain.errors import InvalidInput
from quintain.evaluation.episode_state import COST
from quintain.evaluation.failures import failure_of
from quintain.evaluation.statistics.success_rates import estimate_over_k, pass_at_k, pass_hat_k, rate_over_tasks
from quintain.next_step import Hint, call
from quintain.records.evaluation import FailureKind
from quintain.records.filters import TrajectoryFilter, TrajectorySummary
from quintain.records.run_summary import LabelFigures, RunSummary, ToolFigures
from quintain.records.score import Score
from quintain.records.trajectory import Actor, OutcomeStatus, Source, Trajectory
from quintain.records.wording import clip
from quintain.scoring.outcomes.final_message import final_messages
from quintain.scoring.recorded import RecordedScorer, source_of
from quintain.store.database.paging import decode_cursor, encode_cursor
from quintain.tools.labels.scorer_resolution import full_scorer_name, is_scorer, logged_scores
from quintain.tools.services import Services

_TEXT_CHARS = 60
"""Characters that a text costs of all texts together beside its own."""


class TextCut:
    """Shortens every text of a JSON value and records whether it had to."""

    def __init__(self, max_chars: int, together: float = math.inf) -> None:
        """Bound each text, and all texts together."""
        self.max_chars, self.left = max_chars, together
        self.happened = False

    def apply(self, value: Any) -> Any:
        """Return the value with each text cut."""
        if isinstance(value, str):
            shown = int(min(len(value), self.max_chars, max(0, self.left)))
            self.left -= shown + _TEXT_CHARS
            if shown == len(value):
                return value
            self.happened = True
            return f"{value[:shown]}... [{len(value) - shown} more characters]"
        if isinstance(value, dict):
            return {key: self.apply(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.apply(inner) for inner in value]
        return value


def masked_steps(run: Trajectory, shown: range) -> tuple[int, ...]:
    """Return the indices of the agent's steps that no training uses: marked so, or copied context."""
    steps = run.steps
    return tuple(place for place in shown if steps[place].actor is Actor.AGENT and steps[place].is_masked)


def stored_scores(services: Services, run: Trajectory, shown: range) -> list[dict[str, Any]]:
    """Return the current scores of a run, newest first, with the values of the shown steps alone.

    `steps` of an entry has the index in the run's steps, not among the agent's.
    """
    return [_entry(score, run.agent_places, shown) for score in services.store.scores.current_of(run.id or "")]


def _entry(score: Score, places: Sequence[int], shown: range) -> dict[str, Any]:
    entry: dict[str, Any] = score.model_dump(
        mode="json", exclude_none=True, include={"scorer", "rater", "rubric", "value", "reason", "created_at"}
    )
    if score.feedback:
        entry["feedback"] = score.feedback
    if parts := {one.name: one.value for one in score.components if one.value is not None}:
        entry["parts"] = {name: round(value, 4) for name, value in parts.items()}
    steps = [
        {"step": places[one.step], "value": one.value} | ({"feedback": one.feedback} if one.feedback else {})
        for one in score.steps
        if one.step < len(places) and places[one.step] in shown
    ]
    return {**entry, "steps": steps} if steps else entry


REWARD = "reward"

Fetch = Callable[[int], tuple[tuple[TrajectorySummary, ...], str | None]]
"""Returns at most so many summaries, and the cursor behind the last one."""


def sorted_pages(services: Services, filter: TrajectoryFilter, sort: str, cursor: str | None) -> Fetch:
    """Return what reads a page of the matching runs by descending value, of equal ones by id.

    Values are those before any calibration, of several raters their mean. Runs without a value are left out.
    `-` before `reward` or the name of a scorer sorts by ascending value.
    """
    name, rising = sort.removeprefix("-"), sort.startswith("-")
    values = _values(services, filter, name)
    if not values:
        remedy = "sort by the values of a scorer; "
        score = call("score_trajectories", scorer="rules" if name == REWARD else clip(name), filter=...)
        raise InvalidInput(
            Hint(
                f"expected runs with stored values of {clip(name)!r} to sort by, got none; ",
                *([remedy] if name == REWARD else []),
                *(score, " stores them"),
            ),
            code="nothing_to_sort",
        )
    ranked = sorted(values, key=lambda run: (values[run] if rising else -values[run], run))
    start = 0 if cursor is None else decode_cursor(cursor, f"trajectories by {sort}")

    def fetch(most: int) -> tuple[tuple[TrajectorySummary, ...], str | None]:
        ids = ranked[start : start + most]
        items = services.store.trajectories.summaries(ids)
        following = start + len(ids)
        end = encode_cursor(following, f"trajectories by {sort}") if following < len(ranked) else None
        return tuple(item.model_copy(update={"score": values[item.id]}) for item in items), end

    return fetch


def _values(services: Services, filter: TrajectoryFilter, name: str) -> dict[str, float]:
    """Return run -> value of the matching runs that have one."""
    if name == REWARD:
        return services.store.trajectories.rewards(filter)
    full = full_scorer_name(services, name, filter).name
    scorer = source_of(full).scorer
    found = dict(services.store.scores.values(scorer, filter))
    if not is_scorer(scorer):
        logged = services.store.trajectories.logged_scores(filter)
        found = {run: logged_scores(run, scorer, scores) for run, scores in logged.items()} | found
    reader = RecordedScorer(full, found)
    known = ((run, reader.value(run)) for run in found)
    return {run: value for run, value in known if value is not None}


OTHER = "(other)"
"""Placeholder for answers that are not a label of the tasks."""
_MOST_LABELS = 20
_MOST_TOOLS = 50


def summarize_runs(runs: Iterable[Trajectory]) -> RunSummary:
    """Return the figures of runs, which are read once."""
    counts = _Counts()
    for run in runs:
        counts.add(run)
    return counts.summary()


@dataclass
class _Counts:
    """Sums over runs."""

    outcomes: Counter[OutcomeStatus] = field(default_factory=Counter)
    verdicts: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    failures: Counter[FailureKind] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    marking: set[str] = field(default_factory=set)
    """Formats of which some result is marked as an error. Recorded runs always have the mark; a format of logs may have none."""
    formats: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Tool -> formats of the runs that call it."""
    callers: Counter[str] = field(default_factory=Counter)
    solvers: Counter[str] = field(default_factory=Counter)
    answers: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    asking: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Right answer -> its tasks."""
    turns: int = 0
    spent: dict[str, float | None] = field(default_factory=lambda: {"input": 0, "output": 0, "cost": 0.0})

    def add(self, run: Trajectory) -> None:
        """Count one run."""
        verdict = run.outcome.status.verdict
        self.outcomes[run.outcome.status] += 1
        known = self.verdicts[task_key(run)]
        if verdict is not None:
            known.append(verdict == 1.0)
        if (failure := failure_of(run)) is not None:
            self.failures[failure] += 1
        called = set[str]()
        for step in run.own_steps:
            self.turns += 1
            if any(one.is_error for one in step.observations) or run.source.format == Source().format:
                self.marking.add(run.source.format)
            for action, result in step.calls_with_results:
                self.calls[action.tool] += 1
                called.add(action.tool)
                self.errors[action.tool] += result is not None and result.is_error
            usage = step.usage
            self._spend("input", usage and usage.input_tokens)
            self._spend("output", usage and usage.output_tokens)
        costs, row = [step.extra.get(COST) for step in run.own_steps], run.extra.get("row")
        if isinstance(row, Mapping) and costs and not any(cost is not None for cost in costs):
            costs = [row.get(COST)]  # a column of the log's row, which is that of the whole run
        for cost in costs:
            self._spend("cost", cost)
        self.callers.update(called)
        for tool in called:
            self.formats[tool].add(run.source.format)
        self.solvers.update(called if verdict == 1.0 else ())
        expected = run.task.metadata.get("answer")
        if isinstance(expected, str) and expected.strip():
            label = clip(expected.strip(), 80)
            self.answers[label][next(final_messages(run), "").strip()[:80]] += 1
            self.asking[label].add(task_key(run))

    def _spend(self, kind: str, amount: object) -> None:
        total = self.spent[kind]
        if total is not None:
            self.spent[kind] = total + amount if isinstance(amount, int | float) else None

    def summary(self) -> RunSummary:
        """Return the figures."""
        runs, successes = self.outcomes.total(), self.outcomes[OutcomeStatus.SUCCESS]
        counts = [(sum(known), len(known)) for known in self.verdicts.values() if known]
        read, written, cost = self.spent["input"], self.spent["output"], self.spent["cost"]
        tokens = read + written if read is not None and written is not None else None
        labels = _labels(self.answers, sum(map(len, self.asking.values())))
        right = sum(figures.answered.get(label, 0) for label, figures in (labels or {}).items())
        return RunSummary(
            runs=runs,
            tasks=len(self.verdicts),
            outcomes=dict(self.outcomes.most_common()),
            rate=rate_over_tasks(counts) if counts else None,
            pass_at_k=estimate_over_k(pass_at_k, counts),
            pass_hat_k=estimate_over_k(pass_hat_k, counts),
            failures=dict(self.failures.most_common()),
            mean_turns=self.turns / runs,
            tools=dict(self._tools()),
            input_tokens=None if read is None else int(read),
            output_tokens=None if written is None else int(written),
            cost_usd=cost,
            tokens_per_success=tokens / successes if successes and tokens is not None else None,
            cost_per_success=cost / successes if successes and cost is not None else None,
            labels=labels,
            accuracy=right / sum(sum(f.answered.values()) for f in labels.values()) if labels else None,
            macro_f1=sum(f.f1 for f in labels.values()) / len(labels) if labels else None,
        )

    def _tools(self) -> Iterator[tuple[str, ToolFigures]]:
        for tool, calls in self.calls.most_common(_MOST_TOOLS):
            errors = self.errors[tool] if self.formats[tool] & self.marking else None
            yield (
                tool,
                ToolFigures(
                    calls=calls,
                    errors=errors,
                    error_rate=None if errors is None else errors / calls,
                    runs=self.callers[tool],
                    successes=self.solvers[tool],
                ),
            )


def _labels(answers: Mapping[str, Counter[str]], tasks: int) -> dict[str, LabelFigures] | None:
    """Return the figures of each label; None where the right answers are not labels: a single one, or mostly one of a task."""
    if not 2 <= len(answers) <= _MOST_LABELS or tasks < 2 * len(answers):
        return None
    named = {label.casefold(): label for label in answers}
    rows = {label: Counter[str]() for label in sorted(answers)}
    for label, given in answers.items():
        for answer, n in given.items():
            rows[label][named.get(answer.casefold(), OTHER)] += n
    columns = sum(rows.values(), Counter[str]())
    figures = {}
    for label, row in rows.items():
        right, recall = row[label], row[label] / row.total()
        precision = right / columns[label] if columns[label] else None
        figures[label] = LabelFigures(
            answered=dict(row.most_common()),
            precision=precision,
            recall=recall,
            f1=2 * right / (row.total() + columns[label]),
        )
    return figures
