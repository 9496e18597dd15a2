"""Counts over the rows of a dataset, on which a preview's statistics and warnings are based."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from quintain.datasets.rows import trajectories_of
from quintain.datasets.selection import agent_digest, is_held_out
from quintain.datasets.split_leaks import LeakCheck
from quintain.datasets.splits import task_key
from quintain.records.dataset import LabelledRow, Row, SplitName, TextRow
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.jobs.job import PreviewSpec
from quintain.records.jobs.preview import SplitCounts
from quintain.trainers.data.examples import ExampleMaker
from quintain.trainers.data.streams import common_prefix
from quintain.trainers.preview.faults import Faults
from quintain.trainers.preview.row import ExaminedRow, SingleTurnSize, stops


@dataclass
class CutTurnSizes:
    """Tokens that cut-off turns would need in chunks of their own."""

    most: int = 0
    """Tokens of the largest such chunk."""
    least: int = 0
    """Tokens of the smallest."""
    worst: SingleTurnSize = field(default_factory=lambda: SingleTurnSize(0, 0))
    """The largest, in its parts."""

    def add(self, chunks: Iterable[SingleTurnSize]) -> None:
        """Include the turns of a run."""
        for alone in chunks:
            self.least = min(self.least or sum(alone), sum(alone))
            if sum(alone) > self.most:
                self.most, self.worst = sum(alone), alone


@dataclass
class Survey:
    """Counts of a dataset's rows as training renders them, updated row by row.

    Validation and test rows are compared with the training rows before them, so those come first.
    """

    spec: PreviewSpec
    maker: ExampleMaker
    context: int
    """Tokens of the model's context."""
    faults: Faults
    splits: dict[str, SplitCounts] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)
    length_of: dict[int, int] = field(default_factory=dict)
    """Place of a row -> tokens of its longest run."""
    lost_tokens: dict[int, int] = field(default_factory=dict)
    """Place of a row that is cut -> tokens that are cut off."""
    tokens_seen: set[bytes] = field(default_factory=set)
    agent_text_seen: set[bytes] = field(default_factory=set)
    tasks_seen: set[bytes] = field(default_factory=set)
    labels: Counter[str] = field(default_factory=Counter)
    leaks: LeakCheck = field(default_factory=LeakCheck)
    cut_turns: CutTurnSizes = field(default_factory=CutTurnSizes)
    shared: list[float] = field(default_factory=list)
    """Of each pair, the share of the longer run that is the common prefix."""
    sizes: Counter[int] = field(default_factory=Counter)
    """Number of runs in a group -> groups."""

    @property
    def train(self) -> SplitCounts:
        """Counts of the training split."""
        return self.splits.get("train", SplitCounts())

    @property
    def longest(self) -> int:
        """Tokens of the longest run before anything is cut."""
        return max(self.lengths, default=0)

    @property
    def chunks(self) -> bool:
        """Whether long runs are split at step borders."""
        return isinstance(self.spec.config, SFTConfig) and self.spec.config.chunk

    def share(self, n: int) -> float:
        """Return a count as share of the rows of the training split."""
        return n / max(self.train.rows, 1)

    def add(self, split: SplitName, line: int, row: Row, examined: ExaminedRow) -> None:
        """Count one row."""
        self._count(split, row, examined)
        if examined.refusal:
            self.faults.found["refused"].add(line, 1, examined.refusal)
        tokens = _hash([r.token_ids.tobytes() for m in examined.members for r in m.rows])
        tasks = {_hash([_task(row, run).encode()]) for run in trajectories_of(row) or (None,)}
        if runs := trajectories_of(row):
            self.leaks.add(task_key(runs[0]), row, split)
        if split != "train":
            if tasks & self.tasks_seen:
                self.faults.found["leaked_tasks"].add(line, 1, split)
            elif tokens in self.tokens_seen:
                self.faults.found["leaked_tokens"].add(line, 1, split)
            return
        self.tasks_seen |= tasks
        self._look_for_repeats(line, row, tokens if examined.example else None)
        for member in examined.members:
            self.faults.look(member, line)
            if member.length:
                self.lengths[member.length] += 1
            self.cut_turns.add(member.alone)
        if any(map(is_held_out, trajectories_of(row))):
            self.faults.found["held_out"].add(line)
        if longest := max((member.length for member in examined.members), default=0):
            self.length_of[line - 1] = longest
        if examined.is_cut:
            self.lost_tokens[line - 1] = sum(sum(member.lost.values()) for member in examined.members)
        self._count_shape(row, examined)

    def _count(self, split: str, row: Row, examined: ExaminedRow) -> None:
        counts = self.splits.get(split, SplitCounts())
        example = examined.example
        turned = [stops(m.rows, self.maker.renderer, is_text=isinstance(row, TextRow)) for m in examined.members]
        lost = [member.lost for member in examined.members]
        self.splits[split] = SplitCounts(
            rows=counts.rows + 1,
            token_rows=counts.token_rows + (len(example.rows) if example else 0),
            total_tokens=counts.total_tokens + (example.n_tokens if example else 0),
            trained_tokens=counts.trained_tokens + (example.n_supervised if example else 0),
            truncated_rows=counts.truncated_rows + examined.is_cut,
            lost_steps=counts.lost_steps + sum(map(len, lost)),
            lost_tokens=counts.lost_tokens + sum(sum(tokens.values()) for tokens in lost),
            dropped=_plus(counts.dropped, {examined.dropped: 1} if examined.dropped else {}),
            left_out_members=_plus(counts.left_out_members, examined.left_out),
            unweighted=_plus(counts.unweighted, examined.unweighted),
            trained_turns=counts.trained_turns + sum(turns for turns, _ in turned),
            turns_with_stop=counts.turns_with_stop + sum(stopped for _, stopped in turned),
        )

    def _look_for_repeats(self, line: int, row: Row, tokens: bytes | None) -> None:
        runs = trajectories_of(row)
        # Equal text on another task is not a repetition: "Done." ends many runs.
        agent_text = (
            _hash([part.encode() for run in runs for part in (_task(row, run), agent_digest(run))]) if runs else None
        )
        if tokens is not None and tokens in self.tokens_seen:
            self.faults.found["same_tokens"].add(line)
        elif agent_text is not None and agent_text in self.agent_text_seen:
            self.faults.found["same_agent_text"].add(line)
        self.tokens_seen |= {tokens} if tokens is not None else set()
        self.agent_text_seen |= {agent_text} if agent_text is not None else set()

    def _count_shape(self, row: Row, examined: ExaminedRow) -> None:
        if isinstance(row, LabelledRow):
            self.labels["desirable" if row.desirable else "undesirable"] += 1
        sides = {member.name: member.rows for member in examined.members}
        if sides.get("chosen") and sides.get("rejected"):
            chosen, rejected = sides["chosen"][0].token_ids, sides["rejected"][0].token_ids
            self.shared.append(common_prefix(chosen, rejected) / max(len(chosen), len(rejected)))
        elif "run 1" in sides:
            self.sizes[len(sides)] += 1


def _task(row: Row, run: Any) -> str:
    return row.text if isinstance(row, TextRow) else task_key(run)


def _hash(parts: list[bytes]) -> bytes:
    return hashlib.blake2b(b"|".join(parts), digest_size=12).digest()


def _plus(counts: dict[str, int], more: Any) -> dict[str, int]:
    return dict(Counter(counts) + Counter(more)) if more else counts
