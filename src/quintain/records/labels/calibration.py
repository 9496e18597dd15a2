"""Calibrations: maps from a scorer's scores to people's scores, with the error on held-out labels."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from quintain.records.record import Instant, Record


class CalibrationMap(Record):
    """A non-decreasing map from 0..1 to 0..1."""

    method: Literal["isotonic", "platt"]
    x: tuple[float, ...] = Field(
        default=(), description="isotonic: increasing knots; linear between, constant outside."
    )
    y: tuple[float, ...] = Field(default=(), description="isotonic: value at each knot.")
    slope: float | None = Field(default=None, ge=0, description="platt: 1 / (1 + exp(-(slope x + intercept))).")
    intercept: float | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.method == "isotonic" and (not self.x or len(self.x) != len(self.y)):
            raise ValueError(f"expected as many values as knots, got {len(self.y)} for {len(self.x)}")
        if self.method == "platt" and (self.slope is None or self.intercept is None):
            raise ValueError("expected slope and intercept for a Platt map, got null")
        return self


class ReliabilityBin(Record):
    """Runs with scores in one range: mean score and mean label."""

    low: float
    high: float
    n: int
    mean_score: float
    mean_label: float


class DomainFit(Record):
    """Map of one domain, and its error on held-out labels."""

    map: CalibrationMap
    n_labels: int = Field(ge=1)
    error_before: float = Field(description="Mean squared difference between score and label (Brier 1950).")
    error_after: float = Field(description="The same after calibration, cross-validated.")
    spearman: float | None = Field(description="Rank correlation of score and label. Null if one is constant.")
    reliability: tuple[ReliabilityBin, ...] = ()


class RaterFit(Record):
    """A judge of a panel: label = intercept + slope (value - length_bias doublings), where the bias is taken out."""

    n_labels: int = Field(ge=1)
    weight: float = Field(default=1.0, ge=0, le=1, description="Share in the panel's value.")
    intercept: float
    slope: float = Field(ge=0)
    length_bias: float = Field(description="Value for a doubling of the run's length at equal labels.")
    length_low: float = Field(description="95 % interval of `length_bias`.")
    length_high: float
    length_taken_out: bool = Field(description="Whether the bias is subtracted: its interval does not contain 0.")


class Panel(Record):
    """Several judges as one value, by weights learned against labels."""

    raters: dict[str, RaterFit]
    doublings: float = Field(description="Mean log2 of the length of the labelled runs in characters.")
    error_equal: float | None = Field(default=None, description="Held-out error with equal weights, recalibrated.")
    error_weighted: float | None = Field(default=None, description="Held-out error of the panel, recalibrated.")
    alpha: float | None = Field(default=None, description="Krippendorff's alpha of the judges. Null: undefined.")


class Calibration(Record):
    """One version of a scorer's calibration."""

    id: str = Field(description="`cal-...`")
    scorer: str
    version: int = Field(ge=1, description="Version number for this scorer.")
    labels: str = Field(description="Scorer that provided the labels: `people`, or another one.")
    panel: Panel | None = Field(
        default=None, description="How raters are combined before the map. Null: by their mean."
    )
    domains: dict[str, DomainFit] = Field(description="Domain -> fit. `*` is for all other domains.")
    warnings: tuple[str, ...] = ()
    created_at: Instant | None = None
