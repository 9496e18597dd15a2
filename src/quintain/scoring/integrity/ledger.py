"""The rewards of one source over all runs: points and groups of bounded size, and their findings."""

from __future__ import annotations

from quintain.records.audit import AuditCheck, Finding
from quintain.scoring.integrity.form import FORM, correctness, is_correctness
from quintain.scoring.integrity.groups import Group, find_collapse, find_saturation, is_long_enough
from quintain.scoring.integrity.length import find_inflation
from quintain.scoring.integrity.samples import Point, Reservoir
from quintain.scoring.integrity.separation import find_no_separation
from quintain.scoring.integrity.subject import RECORDED, Reward, Subject
from quintain.scoring.integrity.text import fingerprint

_POINTS, _GROUPS, _PARTS = 20_000, 50_000, 6


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

    def add(self, seen: Subject, reward: Reward, padding: float) -> None:
        """Add a reward; `padding` is the share of the reply that repeats itself."""
        self.top = max(self.top, reward.value)
        named = correctness(reward.metrics)
        correct = reward.outcome if named is None else named
        others = {name: value for name, value in seen.run.outcome.scores.items() if not is_correctness(name)}
        self._points.add(
            Point(
                id=seen.id,
                task=seen.task,
                reward=reward.value,
                length=seen.length,
                padding=padding,
                correct=correct,
                outcome=reward.outcome,
                parts=dict([item for item in others.items() if not FORM.search(item[0])][:_PARTS]),
            )
        )
        group = self._groups.get(seen.group)
        if group is None and len(self._groups) < _GROUPS:
            group = self._groups[seen.group] = Group(seen.id, declared=seen.run.group_id is not None)
        if group is None:
            self._untracked += 1
        else:
            group.add(reward.value, correct, fingerprint(seen.reply) if is_long_enough(seen.reply_words) else None)

    def findings(self) -> dict[AuditCheck, Finding | str]:
        """Return the finding of each check; else the reason why it could not be made, `""` for none found."""
        points = self._points.items
        return {
            "length_inflation": find_inflation(points),
            "saturation": find_saturation(points, self._points.n),
            "group_collapse": find_collapse(self._groups.values(), self._untracked),
            "no_separation": find_no_separation(points),
        }
