"""A scorer whose values go through the calibration that was fitted to them."""

from __future__ import annotations

from quintain.datasets.selection import written_chars
from quintain.records.labels.calibration import Calibration
from quintain.records.protocols import Scorer
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.calibration.fitting import apply
from quintain.scoring.calibration.panel import panel_value
from quintain.scoring.profiles import domain_of
from quintain.scoring.recorded import RAW, RecordedScorer, raw_value


class CalibratedScorer:
    """The inner scorer's value mapped in the run's domain; `raw` keeps what it was, `calibration` what mapped it."""

    def __init__(self, inner: Scorer, calibration: Calibration) -> None:
        self.name = inner.name
        self.calibration_id = calibration.id
        self._inner = inner
        self._calibration = calibration

    def score(self, trajectory: Trajectory) -> Score:
        """The mapped score; an unscored run stays unscored."""
        score = self._inner.score(trajectory)
        if score.value is None:
            return score
        value = apply(self._calibration, self._combined(trajectory, score.value), domain_of(trajectory))
        # The mapped value may be the mean of several raters, so it has no rater.
        update = {"value": value, "raw": score.value, "calibration": self._calibration.id, "rater": None}
        return score.model_copy(update=update)

    def _combined(self, trajectory: Trajectory, value: float) -> float:
        """Return the value by the calibration's panel, if it has one."""
        panel, name = self._calibration.panel, self.name
        if panel is None:
            return value
        verdicts = {name: value}
        if isinstance(self._inner, RecordedScorer):
            newest = self._inner.newest(trajectory.identified().id or "")
            verdicts = {verdict.rater or name: raw_value(verdict) for verdict in newest}
        return panel_value(panel, verdicts, written_chars(trajectory), value)


class RawScorer:
    """The inner scorer without its calibration, under another name."""

    def __init__(self, inner: Scorer) -> None:
        self.name = RAW + inner.name.removeprefix(RAW)
        self._inner = inner

    def score(self, trajectory: Trajectory) -> Score:
        """The score as it is."""
        return self._inner.score(trajectory).model_copy(update={"scorer": self.name})


def without_calibration(score: Score) -> Score:
    """The score as it is stored: under the scorer's own name, before any calibration, which is applied when it is read."""
    update: dict[str, object] = {"scorer": score.scorer.removeprefix(RAW)}
    if score.raw is not None:
        update |= {"value": score.raw, "raw": None, "calibration": None}
    return score.model_copy(update=update)
