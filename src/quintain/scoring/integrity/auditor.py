"""The audit of a stream of rewarded runs, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from quintain.next_step import Hint, call
from quintain.records.labels.audit import AuditCheck, AuditReport, Finding
from quintain.records.score import Score
from quintain.records.trajectory import Trajectory
from quintain.scoring.integrity.answer_echo import find_echo
from quintain.scoring.integrity.audited_run import RECORDED, FlaggedRun, Reservoir, Sign, Subject, rewards_of
from quintain.scoring.integrity.format_only import find_form
from quintain.scoring.integrity.permissions import is_exempt
from quintain.scoring.integrity.repetition import find_repetition, padding_share
from quintain.scoring.integrity.reward_statistics import Ledger
from quintain.scoring.integrity.tampering import find_tampering

REWARDED = 0.5
"""Share of the scale from which a run counts as rewarded. The scale is 0..1, or up to the highest reward above 1."""
_HITS, _SHOWN = 500, 20


class _Single(NamedTuple):
    """A check of single runs."""

    find: Callable[[Subject], Sign | None]
    what: str
    """File operations of the runs."""
    remedy: Hint
    notes_unrewarded: bool
    """Whether an attempt without a reward is worth a note."""


_SINGLE: dict[AuditCheck, _Single] = {
    "answer_echo": _Single(
        find_echo,
        "recite the expected answer or the grading criteria",
        Hint(
            "Leave these runs out, keep answers and criteria out of the agent's view, and score with a checker, or with several "
            "judges and ",
            call("score_trajectories", scorer=..., combine="lower_bound", filter=...),
            ".",
        ),
        True,
    ),
    "format_only": _Single(
        find_form,
        "have the right form around a wrong answer or around none",
        Hint(
            "Leave these runs out. Let the form count only where the answer is right, or limit its share with ",
            call("score_trajectories", scorer=..., cap=..., filter=...),
            ".",
        ),
        False,
    ),
    "repetition": _Single(
        find_repetition,
        "repeat the same words or calls over and over",
        Hint("Leave these runs out; mix `rules` into the score, or a judge whose rubric asks for substance."),
        False,
    ),
    "verifier_tampering": _Single(
        find_tampering,
        "tamper with their check, or read its answers",
        Hint(
            "Leave these runs out, even where they also solved the task; run the check where the agent cannot write, with "
            "tests that it has not seen."
        ),
        True,
    ),
}


class Auditor:
    """Examine rewarded runs one by one and report on all of them."""

    def __init__(self) -> None:
        self._n = self._rewarded = 0
        self._ledgers: dict[str, Ledger] = {}
        self._hits: dict[tuple[AuditCheck, bool], Reservoir[FlaggedRun]] = {
            (check, sure): Reservoir(_HITS) for check in _SINGLE for sure in (True, False)
        }

    def add(self, run: Trajectory, score: Score | None = None) -> None:
        """Examine a run by its recorded reward, and by a score of it where that has a value."""
        run = run.identified()
        rewards = rewards_of(run, score)
        subject = Subject(run, {name: value for reward in reversed(rewards) for name, value in reward.metrics.items()})
        self._n += 1
        for check, single in _SINGLE.items():
            if not is_exempt(run, check) and (sign := single.find(subject)):
                hit = FlaggedRun(subject.id, {reward.source: reward.value for reward in rewards}, sign.evidence)
                self._hits[check, sign.sure].add(hit)
        if not rewards:
            return
        self._rewarded += 1
        padding = padding_share(subject.reply)
        for reward in rewards:
            self._ledgers.setdefault(reward.source, Ledger(reward.source)).add(subject, reward, padding)

    def report(self) -> AuditReport:
        """Return the findings so far."""
        findings = [found for check in _SINGLE if (found := self._single(check)) is not None]
        together, unchecked = self._together()
        findings += together
        if not self._rewarded:
            unchecked |= dict.fromkeys(_SINGLE, "no run has a reward")
        flagged = any(one.severity == "flag" for one in findings)
        return AuditReport(
            verdict="suspicious" if flagged else "clean" if self._rewarded else "too_few",
            n=self._n,
            n_rewarded=self._rewarded,
            findings=tuple(sorted(findings, key=lambda one: one.severity)),
            unchecked=unchecked,
        )

    def _together(self) -> tuple[list[Finding], dict[str, str]]:
        """Return findings over all runs of each source, merged where two sources show the same, and unchecked checks."""
        findings: dict[tuple[str, str], Finding] = {}
        unchecked: dict[str, str] = {}
        for ledger in self._ledgers.values() or [Ledger(RECORDED)]:
            for check, result in ledger.findings().items():
                if isinstance(result, Finding):
                    same = findings.get((check, result.evidence), result)
                    findings[check, result.evidence] = same.model_copy(
                        update={"rewards": (*same.rewards, ledger.source)}
                    )
                elif result:
                    before = f"{unchecked[check]}; " if check in unchecked else ""
                    unchecked[check] = f"{before}{ledger.name}: {result}"
        named = [
            found.model_copy(
                update={
                    "evidence": f"{' and '.join(self._ledgers[one].name for one in found.rewards)}: {found.evidence}"
                }
            )
            for found in findings.values()
        ]
        return named, unchecked

    def _single(self, check: AuditCheck) -> Finding | None:
        single = _SINGLE[check]
        for sure in (True, False):
            kept = self._hits[check, sure]
            paid = [hit for hit in kept.items if self._payers(hit)]
            shown = paid or (kept.items if sure and single.notes_unrewarded and not self._doubted(check) else [])
            if shown:
                return self._finding(check, kept, shown, sure=sure)
        return None

    def _doubted(self, check: AuditCheck) -> bool:
        return any(self._payers(hit) for hit in self._hits[check, False].items)

    def _payers(self, hit: FlaggedRun) -> list[str]:
        """Return the sources that rewarded the run."""
        return [name for name, value in hit.rewards.items() if value >= REWARDED * max(1.0, self._ledgers[name].top)]

    def _finding(
        self, check: AuditCheck, kept: Reservoir[FlaggedRun], shown: Sequence[FlaggedRun], *, sure: bool
    ) -> Finding:
        single, first = _SINGLE[check], shown[0]
        # The sample estimates the share where not all hits are kept.
        count = max(1, round(kept.n * len(shown) / len(kept.items)))
        least: dict[str, float] = {}
        for hit in shown:
            for name in self._payers(hit):
                least[name] = min(hit.rewards[name], least.get(name, hit.rewards[name]))
        price = " and ".join(
            f"a {'recorded reward' if name == RECORDED else f'score of {name}'} of {value:g} or more"
            for name, value in least.items()
        )
        return Finding(
            check=check,
            severity="flag" if sure and least else "note",
            count=count,
            trajectory_ids=tuple(hit.id for hit in shown[:_SHOWN]),
            rewards=tuple(least),
            evidence=f"{count} of {self._n} runs {'' if sure else 'may '}{single.what}, "
            f"{f'with {price}' if price else 'without a reward'}. {first.id}: {first.evidence}",
            remedy=single.remedy if sure else Hint("Look at these runs. ", single.remedy),
            figures={"count": count, "share": round(count / self._n, 4)},
        )
