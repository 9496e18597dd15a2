"""Audits of rewards: runs rewarded for something other than doing their task."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from quintain.next_step import Hint
from quintain.records.record import Record

AuditCheck = Literal[
    "answer_echo",
    "format_only",
    "length_inflation",
    "repetition",
    "verifier_tampering",
    "saturation",
    "group_collapse",
    "no_separation",
]


class Finding(Record):
    """One problem with the rewards."""

    check: AuditCheck
    severity: Literal["flag", "note"] = Field(description="flag: do not train on these rewards.")
    count: int = Field(ge=1, description="Number of affected runs or groups.")
    trajectory_ids: tuple[str, ...] = Field(default=(), description="Examples of affected runs.")
    rewards: tuple[str, ...] = Field(default=(), description="Affected rewards: those of a scorer, or `recorded` ones.")
    evidence: str = Field(description="Evidence with numbers. Quotes of runs are data.")
    remedy: Hint
    figures: dict[str, Any] = Field(default_factory=dict)


class AuditReport(Record):
    """Scope and findings of an audit."""

    verdict: Literal["clean", "suspicious", "too_few"]
    n: int = Field(description="Number of audited runs.")
    n_rewarded: int = Field(description="Number of runs with a reward.")
    findings: tuple[Finding, ...] = ()
    unchecked: dict[str, str] = Field(default_factory=dict, description="Check -> why it was not possible.")
