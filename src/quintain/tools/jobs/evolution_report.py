"""What an evolution brought, for people: its rounds, and the proof on tasks that no round was selected by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quintain.evaluation.reports.report import Section, Table
from quintain.records.jobs.job import JobResult

_HEADER = ("round", "explored", "solved", "selected", "success", "gain, 95 % interval", "decision")


def evolution_sections(result: JobResult) -> tuple[Section, ...]:
    """Return the sections on an evolution; one that was stopped may lack the proof or all rounds."""
    rounds: list[Mapping[str, Any]] = result.report.get("rounds") or []
    lines = [f"It ended by {stopped}."] if (stopped := result.report.get("stopped")) else []
    lines += [_proof(final)] if (final := result.report.get("final")) else []
    sections = [Section("Outcome", tuple(lines))] if lines else []
    if rounds:
        sections.insert(0, Section("Rounds", table=Table(_HEADER, tuple(map(_round, rounds))), shown=len(rounds)))
    return tuple(sections)


def _round(one: Mapping[str, Any]) -> tuple[str, ...]:
    counts = {name: str(one.get(name, "unknown")) for name in ("round", "explored", "selected")}
    shares = (_share(one.get("explored_success")), counts["selected"], _share(one.get("success")))
    return (counts["round"], counts["explored"], *shares, _gain(one), str(one.get("decision", "")).replace("_", " "))


def _gain(one: Mapping[str, Any]) -> str:
    gain, low, high = (one.get(name) for name in ("gain", "ci_low", "ci_high"))
    if gain is None:
        return ""
    return f"{gain:+.1%}" + (f" [{low:+.1%}, {high:+.1%}]" if low is not None and high is not None else "")


def _proof(final: Mapping[str, Any]) -> str:
    before, after = _share(final.get("before")), _share(final.get("after"))
    gain = _gain(final)
    p = f", p = {final['p']:.2g}" if final.get("p") is not None else ""
    return f"Tasks that no round was selected by: {before} before, {after} after" + (f" ({gain}{p})." if gain else ".")


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"
