"""Job kinds `judge` and `score`: a model behind an endpoint judges runs, a local one does, or a reward model or step model values them.

Two files record what is done. `judged.jsonl` in the job's folder gets a line for each item before its outputs are written;
`outputs/` has scores and preferences. An item is done when both have it, or when it failed and has nothing to hand over. An item
that was killed in between is asked again, and answered from the cache.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from quintain.endpoints.completion import Spent
from quintain.endpoints.faults import BUSY, STOPPED
from quintain.errors import Unavailable
from quintain.jobs.directory import iterate_lines, open_appending, output_records, write_line
from quintain.records.jobs.job import JobResult
from quintain.records.jobs.run_jobs import JudgeSpec, ScoreSpec
from quintain.records.protocols import Reporter
from quintain.records.trajectory import Trajectory
from quintain.records.wording import clip
from quintain.scoring.calibration.agreement import even_odds
from quintain.scoring.judges.judging_items import comparisons
from quintain.worker.job_inputs import RunInputs, most_common_causes, open_run_inputs, score_each
from quintain.worker.judging.asking import Verdicts
from quintain.worker.judging.judges import EndpointJudge, LocalJudge
from quintain.worker.policies.request_ledger import cost_report


def run(spec: JudgeSpec | ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    """Judge or score the runs that are left, and write scores or preferences."""
    reporter.phase("preparing")
    if isinstance(spec, ScoreSpec) and spec.rubric is None:
        return _by_head(spec, directory, reporter)
    judge: EndpointJudge | LocalJudge
    if isinstance(spec, JudgeSpec):
        judge = EndpointJudge.open(spec.endpoint, spec, directory, spec.seed)
    else:
        reporter.phase("loading_model")
        judge = LocalJudge.open(spec.agent, spec, spec.seed)
    with closing(judge), closing(Journal(directory)) as journal:
        return _by_judge(spec, judge, journal, reporter)


def _by_head(spec: ScoreSpec, directory: Path, reporter: Reporter) -> JobResult:
    runs = open_run_inputs(spec.runs)
    reporter.phase("loading_model")
    from quintain.trainers.reward_models import score_runs

    reporter.phase("scoring")
    n, valued, is_whole = score_each(runs, directory, reporter, partial(score_runs, spec.agent))
    if not is_whole:
        return JobResult(report={"scored": valued, "planned": runs.n})
    return JobResult(n=valued, n_error=n - valued, report={"runs": runs.n, "scored": valued, "unscored": n - valued})


BROKEN_AFTER = 20
"""Items in a row without an answer, after which the judge counts as out of order."""


_BIASED = 0.001
"""Probability of as uneven votes from a judge without a favourite place, below which a warning is given."""

_REPORTED = {
    "scored": "scored",
    "preferences": "preferences",
    "ties": "ties",
    "inconsistent": "order_inconsistent",
    "first": "shown_first_preferred",
    "second": "shown_second_preferred",
    "shortened": "shortened",
    "withheld": "credit_withheld",
    "uncontrolled": "control_unknown",
    "cached": "answers_from_cache",
}
"""Count in a line of `judged.jsonl` -> its name in the report. `first` and `second` are votes for the run shown there, over both orders."""


@dataclass
class Tally:
    """Counts of the judged items, earlier attempts of the job included."""

    items: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    spent: Spent = field(default_factory=Spent)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Count an item by its line in `judged.jsonl`."""
        self.items += 1
        self.counts.update({name: int(entry.get(name, 0)) for name in _REPORTED})
        if entry["failed"]:
            self.failed[entry["failed"]] += 1

    def report(self, usd: float | None) -> dict[str, Any]:
        """The counts, for people."""
        common = dict(self.failed.most_common(10))
        other = self.failed.total() - sum(common.values())
        return {
            **{reported: self.counts[name] for name, reported in _REPORTED.items()},
            "order_p": even_odds(self.counts["first"], self.counts["second"]),
            "failed": common | ({"other reasons": other} if other else {}),
            **self.spent.model_dump(exclude={"in_flight"}),
            **cost_report(usd, self.spent.in_flight),
        }


class Journal:
    """`judged.jsonl`: a line for each item that was judged."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "judged.jsonl"
        self._descriptor = open_appending(self._path)
        self._entries = {tuple(entry["ids"]): entry for entry in map(json.loads, iterate_lines(self._path))}
        self._written = _written(directory)

    def tally(self) -> Tally:
        """Return the counts of earlier attempts."""
        tally = Tally()
        for ids, entry in self._entries.items():
            if self.is_done(ids):
                tally.add(entry)
        return tally

    def is_done(self, ids: tuple[str, ...]) -> bool:
        """Whether the item was judged and its outputs were written."""
        entry = self._entries.get(ids)
        if entry is None:
            return False
        handed_over = entry["scored"] or entry["preferences"] or len(ids) == 1
        return not handed_over or ids in self._written or self._has_pairs(ids, entry["preferences"])

    def write(self, verdicts: Verdicts) -> dict[str, Any]:
        """Append an item, before its outputs are written."""
        judged, views = verdicts.judged, verdicts.item.views
        entry = {
            "ids": list(verdicts.item.ids),
            "scored": sum(score.value is not None for score in judged.scores),
            "preferences": len(judged.preferences),
            "ties": sum(preference.better == "tie" for preference in judged.preferences),
            "inconsistent": judged.inconsistent,
            "first": sum(pair.count("a") for pair in judged.votes),
            "second": sum(pair.count("b") for pair in judged.votes),
            "cached": verdicts.cached,
            "shortened": sum(view.shortened for view in views),
            "withheld": judged.withheld,
            "uncontrolled": int(verdicts.control is not None and verdicts.control.failed is not None),
            "failed": clip(judged.failed, 300) if judged.failed else None,
        }
        write_line(self._descriptor, json.dumps(entry))
        return entry

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _has_pairs(self, ids: tuple[str, ...], n: int) -> bool:
        """Whether the item's preferences were all written."""
        pairs = {tuple(sorted((a, b))) for i, a in enumerate(ids) for b in ids[i + 1 :]}
        return 0 < n <= len(pairs & self._written)


def _by_judge(
    spec: JudgeSpec | ScoreSpec, judge: EndpointJudge | LocalJudge, journal: Journal, reporter: Reporter
) -> JobResult:
    """Judge the items that are left, in any order, write the outputs, and return the report.

    Raises:
        Unavailable: No item has a verdict (`nothing_judged`), or the endpoint answers nothing any more.
    """
    tally = journal.tally()
    planned, alone, items = _planned(open_run_inputs(spec.runs), spec, journal)
    reporter.phase("judging")
    in_a_row = 0
    for _, found in judge.judge(items, reporter.should_stop):
        tally.spent = judge.spent
        if found.code == STOPPED:
            continue
        entry = journal.write(found)
        for score in found.judged.scores:
            reporter.output("score", score)
        for preference in found.judged.preferences:
            reporter.output("preference", preference)
        tally.add(entry)
        in_a_row = in_a_row + 1 if found.code == BUSY else 0
        metrics: dict[str, float | None] = {
            "failed": float(tally.failed.total()),
            "requests": float(tally.spent.requests),
            "usd": judge.usd(tally.spent),
        }
        reporter.progress(tally.items, planned, metrics)
        if in_a_row >= BROKEN_AFTER or in_a_row == planned:
            raise Unavailable(
                f"{found.judged.failed}; {in_a_row} items in a row got no answer. What was judged is kept: resume "
                "the job when the endpoint answers again"
            )
    tally.spent = judge.spent
    counts = tally.report(judge.usd(tally.spent))
    if reporter.should_stop() and tally.items < planned:
        return JobResult(report={"judged": tally.items, "planned": planned} | counts)
    facts = {"mode": spec.mode, "rubric": spec.rubric.name if spec.rubric else None, "runs": spec.runs.n}
    if alone:
        facts["alone_in_their_task"] = alone
        reporter.warn("alone", f"{alone} of {spec.runs.n} runs have no other run of their task to be compared with")
    if unscored := tally.failed.total():
        _warn_unscored(tally, unscored, reporter)
    n_first, n_second, reversed_pairs = (tally.counts[name] for name in ("first", "second", "inconsistent"))
    odds = even_odds(n_first, n_second)
    if odds is not None and odds < _BIASED and reversed_pairs:
        place = "first" if n_first > n_second else "second"
        reporter.warn(
            "position_bias",
            f"the judge preferred the run shown {place} {max(n_first, n_second)} times and the other {min(n_first, n_second)} times; "
            f"the {reversed_pairs} pairs on which its two answers disagree are ties: let another model judge",
        )
    return JobResult(n=tally.items - unscored, n_error=unscored, report=facts | counts)


def _warn_unscored(tally: Tally, unscored: int, reporter: Reporter) -> None:
    causes = most_common_causes(tally.failed)
    if unscored == tally.items:
        raise Unavailable(
            f"expected verdicts of the judge, got none on {tally.items} items: {causes}; correct the cause, or let another model "
            "judge",
            code="nothing_judged",
        )
    reporter.warn("not_judged", f"{unscored} of {tally.items} items have no verdict: {causes}")


def _planned(
    runs: RunInputs, spec: JudgeSpec | ScoreSpec, journal: Journal
) -> tuple[int, int, Iterator[tuple[Trajectory, ...]]]:
    """Return the number of items, the number of runs without another of their task, and the items that are left."""
    if spec.mode in {"score", "steps"}:
        return runs.n, 0, ((run,) for run in runs.stream() if not journal.is_done((run.id or "",)))
    tasks = runs.by_task()
    alone = sum(len(ids) < 2 for ids in tasks.tasks.values())
    groups = [group for ids in tasks.tasks.values() for group in comparisons(ids, spec.mode, spec.seed)]
    return len(groups), alone, (tasks.read(group) for group in groups if not journal.is_done(group))


def _written(directory: Path) -> set[tuple[str, ...]]:
    """Return the runs with a score and the pairs with a preference in the outputs of earlier attempts."""
    found: set[tuple[str, ...]] = {(score["trajectory_id"],) for _, score in output_records(directory, "score")}
    pairs = (pair for _, pair in output_records(directory, "preference"))
    return found | {tuple(sorted((pair["a"], pair["b"]))) for pair in pairs}
