"""What two verdicts on one run come to, one with and one without the text in it that may ask for a verdict.

The verdict without that text counts, so nothing that was caught sets a value. Where the verdict with it is another one, the text
moved the judge, or was needed to judge: then neither counts, and the run is unscored. A gap could hide what is bad in a run, as
a demand could praise it; both show in the difference.
"""

from __future__ import annotations

from collections.abc import Sequence

from quintain.records.score import MOVED, Score

TOLERANCE = 0.1
"""Two values that are at most so far apart agree: of each criterion, each step, and over all."""


def settled(shown: Score, bare: Score, places: Sequence[str]) -> Score:
    """The score that a run gets by its verdict with all text (`shown`) and the one without what may ask for a verdict (`bare`).

    Args:
        shown: With all text.
        bare: Without what may ask for a verdict.
        places: Where that text stands.
    """
    if bare.value is None:
        return bare
    text = f"text in {', '.join(places)}"
    if (difference := _difference(shown, bare)) is None:
        note = f"[twice] The judge was asked with and without {text} that may ask for a verdict; the value is the one without."
        return bare.model_copy(update={"feedback": f"{bare.feedback} {note}".strip()})
    return Score(
        trajectory_id=bare.trajectory_id,
        scorer=bare.scorer,
        rater=bare.rater,
        rubric=bare.rubric,
        status="unscored",
        reason=f"{moved_by(places)}: {difference}",
    )


def moved_by(places: Sequence[str]) -> str:
    """Why there is no verdict where two verdicts differ."""
    return f"{MOVED} in {', '.join(places)} that may address it"


def without_values(reason: str) -> str:
    """A reason as whoever judged may read it: what the two values were would tell how to answer once more."""
    return reason.partition(": ")[0] if reason.startswith(MOVED) else reason


def summary(reason: str | None) -> str | None:
    """A reason without what is of one run alone, so that equal reasons can be counted."""
    return f"{MOVED} that may address it" if (reason or "").startswith(MOVED) else reason


def _difference(shown: Score, bare: Score) -> str | None:
    """What tells the two verdicts apart; None: they agree."""
    if shown.value is None:
        return f"with it there is no value ({shown.reason}), without it there is one"
    steps = {one.step: one for one in shown.steps}
    pairs: list[tuple[str, float | None, float | None]] = [("the value", shown.value, bare.value)]
    parts = {part.name: part.value for part in shown.components}
    pairs += [(part.name, parts[part.name], part.value) for part in bare.components if part.name in parts]
    for one in bare.steps:
        other = steps.get(one.step)
        if other is None:
            continue
        pairs.append((f"step {one.step}", other.value, one.value))
        names = dict.fromkeys((*other.parts, *one.parts))
        pairs += [(f"{name} of step {one.step}", other.parts.get(name), one.parts.get(name)) for name in names]
    for name, with_it, without in pairs:
        if (with_it is None) != (without is None):
            return f"{name} is {_told(with_it)} with it and {_told(without)} without"
        if with_it is not None and without is not None and abs(with_it - without) > TOLERANCE + 1e-9:
            return f"{name} is {_told(with_it)} with it and {_told(without)} without, more than {TOLERANCE} apart"
    return None


def _told(value: float | None) -> str:
    return "missing" if value is None else f"{value:.2f}"
