"""The rewards of one source over all runs: points and groups of bounded size, and what is suspicious of them together."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from quintain.next_step import Hint, call
from quintain.records.labels.audit import AuditCheck, Finding
from quintain.scoring.integrity.audited_run import RECORDED, Point, Reservoir, Reward, Subject
from quintain.scoring.integrity.format_only import correctness, is_correctness
from quintain.scoring.integrity.text import fingerprint
from quintain.scoring.rank_statistics import separation, spearman, stratified_spearman

MIN_RUNS, MIN_STRATUM = 8, 4
MIN_WITHIN, MIN_ACROSS, MAX_P = 0.6, 0.8, 0.005
"""Least rank correlation inside of tasks and across tasks, and the chance of as much without a relation."""
PADDED, MORE_PADDED = 0.35, 0.15
"""Mean padding of the better rewarded half, and by how much it exceeds that of the other half."""
_IS_LENGTH = 0.95
"""Rank correlation with length from which a part says no more than length does."""
_PERMUTATIONS = 999
_MOST = 1000
SATURATED, MIN_SATURATED = 0.95, 20
"""Share of the runs at the maximum, and least number of runs."""
HALF, MIN_AT_TOP, HOLLOW, MIN_KNOWN = 0.5, 8, 0.5, 5
"""The same where the runs at the maximum are not correct: their mean correctness is at most `HOLLOW`, known of so many."""
DEAD, MIN_GROUPS, MIN_GROUPED = 0.75, 4, 16
"""Share of groups without a difference, and least numbers of groups and runs in them."""
ALIKE, MIN_ALIKE = 0.75, 4
_EQUAL = 1e-9
_MIN_WORDS = 6
"""Words of a reply from which equal replies are not a coincidence."""
_MOST_REPLIES = 32
_POINTS, _GROUPS, _PARTS = 20_000, 50_000, 6
MIN_CLASS = 5
POOR, MAX_HIGH = 0.6, 0.7
"""Largest area that is reported, and upper end of its interval below which the finding is sure."""


class Ledger:
    """The rewards that one source gave."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.top = 0.0
        """The highest reward so far; 0 at least."""
        self._points: Reservoir[Point] = Reservoir(_POINTS)
        self._groups: dict[str, Group] = {}
        self._untracked = 0

    @property
    def name(self) -> str:
        """Description of its rewards."""
        return "recorded rewards" if self.source == RECORDED else f"scores of {self.source}"

    def add(self, subject: Subject, reward: Reward, padding: float) -> None:
        """Add a reward; `padding` is the share of the reply that repeats itself."""
        self.top = max(self.top, reward.value)
        named = correctness(reward.metrics)
        correct = reward.outcome if named is None else named
        others = {name: value for name, value in subject.run.outcome.scores.items() if not is_correctness(name)}
        self._points.add(
            Point(
                id=subject.id,
                task=subject.task,
                reward=reward.value,
                length=subject.length,
                padding=padding,
                correct=correct,
                outcome=reward.outcome,
                parts=dict(islice(others.items(), _PARTS)),
            )
        )
        group = self._groups.get(subject.group)
        if group is None and len(self._groups) < _GROUPS:
            group = self._groups[subject.group] = Group(subject.id, declared=subject.run.group_id is not None)
        if group is None:
            self._untracked += 1
        else:
            is_long = len(subject.reply_words) >= _MIN_WORDS
            group.add(reward.value, correct, fingerprint(subject.reply) if is_long else None)

    def findings(self) -> dict[AuditCheck, Finding | str]:
        """Return the finding of each check; else the reason why it could not run, `""` for none found."""
        points = self._points.items
        return {
            "length_inflation": find_inflation(points),
            "saturation": _find_saturation(points, self._points.n),
            "group_collapse": _find_collapse(self._groups.values(), self._untracked),
            "no_separation": _find_no_separation(points),
        }


def _find_no_separation(points: Sequence[Point]) -> Finding | str:
    """Return the finding; else the reason why there is none, `""` for a check that found nothing."""
    good = [point for point in points if point.outcome == 1.0]
    bad = [point for point in points if point.outcome == 0.0]
    if min(len(good), len(bad)) < MIN_CLASS:
        return f"{len(good)} successes and {len(bad)} failures known beside the reward; it takes {MIN_CLASS} of each"
    found = separation([point.reward for point in good], [point.reward for point in bad])
    if found.auc > POOR and found.high >= MAX_HIGH:
        return ""
    least = sorted(bad, key=lambda point: -point.reward)[:5]
    return Finding(
        check="no_separation",
        severity="flag" if found.high < MAX_HIGH else "note",
        count=len(good) + len(bad),
        trajectory_ids=tuple(point.id for point in least),
        evidence=f"a success has the higher reward in {found.auc:.0%} of the pairs with a failure (95 % interval {found.low:.2f} to "
        f"{found.high:.2f}; chance is 50 %); {len(good)} successes, {len(bad)} failures",
        remedy=Hint(
            "Do not train on this score: use `outcome`, mix it in, calibrate the scorer with ",
            call("fit_calibration", scorer=...),
            ", or correct its rubric.",
        ),
        figures={"auc": round(found.auc, 4), "low": round(found.low, 4), "high": round(found.high, 4)},
    )


@dataclass
class Group:
    """Runs that were sampled together."""

    id: str
    declared: bool = True
    """Whether they were sampled as a group to be compared; else they only share a task."""
    n: int = 0
    low: float = 0.0
    high: float = 0.0
    correct: float | None = None
    """The least correctness that is known of a run in it."""
    replies: Counter[bytes] = field(default_factory=Counter)
    """Fingerprints of the first few long replies."""

    def add(self, reward: float, correct: float | None, reply: bytes | None) -> None:
        """Add a run."""
        if correct is not None:
            self.correct = correct if self.correct is None else min(self.correct, correct)
        self.low = min(self.low, reward) if self.n else reward
        self.high = max(self.high, reward) if self.n else reward
        self.n += 1
        if reply is not None and (reply in self.replies or len(self.replies) < _MOST_REPLIES):
            self.replies[reply] += 1

    @property
    def dead(self) -> bool:
        """Whether all runs have the same reward."""
        return self.high - self.low <= _EQUAL

    @property
    def correct_throughout(self) -> bool:
        """Whether all runs are known to be correct."""
        return self.correct is not None and self.correct > HOLLOW

    @property
    def alike(self) -> bool:
        """Whether most of the replies are equal."""
        return self.n >= MIN_ALIKE and max(self.replies.values(), default=0) >= ALIKE * self.n


def _find_saturation(points: Sequence[Point], n: int) -> Finding | str:
    """Return the finding; else the reason why there is none, `""` for a check that found nothing.

    Many runs at the maximum are a note: an easy task has them honestly. They are a flag where the known correctness, of
    which the reward does not contain, does not follow.
    """
    if len(points) < MIN_AT_TOP:
        return f"{len(points)} rewarded runs; it takes {MIN_AT_TOP}"
    top = max(point.reward for point in points)
    at_top = [point for point in points if point.reward >= top - _EQUAL]
    share = len(at_top) / len(points)
    known = [point.correct for point in at_top if point.correct is not None]
    correct = math.fsum(known) / len(known) if known else None
    hollow = correct is not None and correct <= HOLLOW and len(known) >= max(MIN_KNOWN, len(at_top) / 2)
    if top <= 0 or share < (HALF if hollow else SATURATED) or (not hollow and len(points) < MIN_SATURATED):
        return ""
    beside = (
        "" if correct is None else f"; their mean correctness is {correct:.2f} over {len(known)} runs where it is known"
    )
    return Finding(
        check="saturation",
        severity="flag" if hollow else "note",
        count=round(share * n),
        trajectory_ids=tuple(point.id for point in at_top[:5]),
        evidence=f"{share:.0%} of {n} rewarded runs have the highest reward, {top:g}{beside}",
        remedy="No method that compares runs learns from this: take harder tasks, or a scorer that distinguishes these runs.",
        figures={"share_at_top": round(share, 4), "top": top, "correctness_at_top": correct},
    )


def _find_collapse(groups: Collection[Group], untracked: int) -> Finding | str:
    """Return the finding; else the reason why there is none, `""` for a check that found nothing."""
    several = [group for group in groups if group.n > 1]
    dead = [group for group in several if group.dead]
    # Greedy sampling gives equal replies to runs that only share a task; they matter where their rewards differ.
    copies = [group for group in several if group.alike and (group.declared or not group.dead)]
    one_voice = len(copies) >= max(1, len(several) / 2) and _n_runs(copies) >= 2 * MIN_ALIKE
    if not one_voice:
        if len(several) < 2 or _n_runs(several) < 2 * MIN_ALIKE:
            return (
                f"{len(several)} tasks with several runs ({_n_runs(several)}); it takes {MIN_GROUPS} with {MIN_GROUPED}"
            )
        if len(dead) / len(several) < 0.5:
            return ""
    declared = [group for group in several if group.declared]
    silent = len(dead) / len(several) >= DEAD and len(declared) >= MIN_GROUPS and _n_runs(declared) >= MIN_GROUPED
    # Equal rewards of equally correct runs are an easy task: no signal, and no trick either.
    honest = all(group.correct_throughout for group in (*dead, *copies))
    collapsed = copies if one_voice else dead
    return Finding(
        check="group_collapse",
        severity="flag" if (one_voice or silent) and not honest else "note",
        count=len(collapsed),
        trajectory_ids=tuple(group.id for group in collapsed[:5]),
        evidence=_collapse_evidence(len(several), len(dead), len(copies), untracked),
        remedy="These groups have no advantage to learn from (grpo skips them): sample warmer, take tasks that succeed sometimes, "
        "or a finer scorer.",
        figures={"groups": len(several), "dead": len(dead), "alike": len(copies)},
    )


def _n_runs(groups: Collection[Group]) -> int:
    return sum(group.n for group in groups)


def _collapse_evidence(several: int, dead: int, copies: int, untracked: int) -> str:
    words = f"{dead} of {several} groups have one reward for all of their runs ({dead / several:.0%})"
    if copies:
        words += f"; {copies} consist of one and the same reply"
    if untracked:
        words += f"; {untracked} runs of further groups were not looked at"
    return words


class Relation(NamedTuple):
    """Rank correlation of reward and length among equally correct runs."""

    rho: float
    p: float
    n: int
    within: bool
    """Inside of tasks; else across them."""
    controlled: bool
    """How correct the runs are is known."""


def find_inflation(points: Sequence[Point]) -> Finding | str:
    """Return the finding; else the reason why there is none, `""` for a check that found nothing."""
    points = points[:_MOST]
    if len(points) < MIN_RUNS:
        return f"{len(points)} rewarded runs; it takes {MIN_RUNS}"
    found = _relation(points, lambda point: (point.task, _level(point)), within=True)
    if found is None:
        found = _relation(points, _level, within=False)
    if found is None:
        return ""
    least = MIN_WITHIN if found.within else MIN_ACROSS
    if found.rho < least or found.p > MAX_P:
        return ""
    better, other = _padding(points)
    padded = better >= PADDED and better - other >= MORE_PADDED
    if not (found.controlled or padded or found.within):
        return ""
    # Across tasks the longer answers may be those of harder tasks that pay more, and a part that rises too may be the better work.
    explained = _explaining(points, found.rho)
    sure = padded or (found.controlled and found.within and explained is None)
    longest = sorted(points, key=lambda point: -point.length)[:5]
    return Finding(
        check="length_inflation",
        severity="flag" if sure else "note",
        count=found.n,
        trajectory_ids=tuple(point.id for point in longest),
        evidence=f"reward rises with length among runs {'of one task ' if found.within else ''}"
        f"{'that are equally correct' if found.controlled else 'whose correctness is unknown'}: rank correlation {found.rho:.2f}, "
        f"p {found.p:.3g}, n {found.n}; padding is {better:.0%} of the better rewarded half, {other:.0%} of the other"
        f"{'' if explained is None else f'; it rises with {explained!r} as well'}",
        remedy=Hint(
            "Score with something that length does not move (a checker, or a rubric that asks for concise answers), or mix it "
            "in; cap the reward with ",
            call("score_trajectories", scorer=..., cap=..., filter=...),
            ", or prefer pairs of equal length.",
        ),
        figures={
            "rank_correlation": round(found.rho, 4),
            "p": round(found.p, 4),
            "n": found.n,
            "padding": round(better, 4),
        },
    )


def _relation(points: Sequence[Point], key: Callable[[Point], Hashable], *, within: bool) -> Relation | None:
    strata: dict[Hashable, list[Point]] = defaultdict(list)
    for point in points:
        strata[key(point)].append(point)
    usable = [part for part in strata.values() if len(part) >= MIN_STRATUM]
    n = sum(map(len, usable))
    if n < MIN_RUNS:
        return None
    columns = [([float(point.length) for point in part], [point.reward for point in part]) for part in usable]
    found = stratified_spearman(columns, permutations=_PERMUTATIONS, seed=0)
    if found is None:
        return None
    known = sum(point.correct is not None for part in usable for point in part)
    return Relation(*found, n, within, known >= 0.8 * n)


def _explaining(points: Sequence[Point], rho: float) -> str | None:
    """Return a recorded part that goes with the reward as closely as length does and is not length itself."""
    for name in sorted({name for point in points for name in point.parts}):
        known = [point for point in points if name in point.parts]
        if len(known) < 0.8 * len(points):
            continue
        values = [point.parts[name] for point in known]
        with_reward = spearman(values, [point.reward for point in known])
        with_length = spearman(values, [float(point.length) for point in known])
        if with_reward is None or with_length is None or with_length >= _IS_LENGTH:
            continue
        if with_reward >= rho - 0.05:
            return name
    return None


def _level(point: Point) -> float | None:
    return None if point.correct is None else round(point.correct, 2)


def _padding(points: Sequence[Point]) -> tuple[float, float]:
    """Mean padding of the better rewarded half, and of the other."""
    order = sorted(points, key=lambda point: -point.reward)
    half = len(order) // 2
    better, other = ([point.padding for point in part] for part in (order[:half], order[half:]))
    return math.fsum(better) / len(better), math.fsum(other) / len(other)
