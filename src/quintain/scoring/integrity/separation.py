"""No separation: a score that is no higher for runs that did their task than for runs that did not."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.next_step import Hint, call
from quintain.records.audit import Finding
from quintain.scoring.integrity.samples import Point
from quintain.scoring.rank_statistics import separation

MIN_CLASS = 5
POOR, MAX_HIGH = 0.6, 0.7
"""Largest area that is reported, and upper end of its interval below which the finding is sure."""


def find_no_separation(points: Sequence[Point]) -> Finding | str:
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
