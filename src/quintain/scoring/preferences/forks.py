"""Step-level preferences, mined from forks: the same prefix, different actions, different values.

The runs of one task form a prefix tree. Two runs share a node as long as all that the model would see is equal: messages,
thoughts, calls and the environment's answers, but not call ids or times. Where runs that share a node act differently, it
forks. The value of a branch is the mean value of all runs through it, a Monte-Carlo estimate of the step's value (Wang et al.
2023, arXiv 2312.08935, section 3.3). Time and memory are linear in the steps of all runs: prefixes are hashed, and runs are
never compared with each other.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from quintain.records.seeds import stable_seed
from quintain.records.trajectory import Action, Actor, Content, Step, Trajectory, text_of
from quintain.scoring.preferences.mining import Bounds, Pair, gap, group_by_task, spread

_BYTES = 8
"""Bytes of a digest: among five million prefixes, the probability of a collision is 7e-7."""

_UNTRAINED = bytes(_BYTES)
"""Stands for the action of a step that may not be trained on, which makes no branch."""


class Path(NamedTuple):
    """A run as `mine_forks` reads it, without its text: 16 bytes a step."""

    task: str
    trajectory_id: str
    value: float
    """Value of the run, higher is better."""
    digests: bytes
    """For each agent step: digest of all before it, then that of its action."""


class Branch(NamedTuple):
    """One continuation after a fork."""

    trajectory_id: str
    """A run through it: the best one of the better branch, the worst one of the worse."""
    value: float
    """Mean value of the runs through it."""
    runs: int


class Fork(NamedTuple):
    """Two branches after the same prefix; equal values are a tie."""

    task: str
    step: int
    """Index of the agent step at which they diverge."""
    better: Branch
    worse: Branch

    @property
    def margin(self) -> float:
        """Difference of the values."""
        return gap(self.better.value, self.worse.value)


class MinedForks(NamedTuple):
    """Result of `mine_forks`."""

    forks: list[Fork]
    ties: list[Fork]
    forks_left_out: Counter[str]
    """Reason -> forks that give nothing: `no_contrast`, `below_margin`, `pair_limit`."""
    runs_left_out: Counter[str]
    """Reason -> runs without a fork: `group_of_one`, `no_fork`."""


def path_of(run: Trajectory, task: str, value: float) -> Path:
    """Return the path of a run through the tree of its task; higher values are better."""
    before = _digest(task)
    digests = bytearray()
    for step in run.steps:
        if step.actor is Actor.AGENT:
            digests += before + (_UNTRAINED if step.is_masked else _digest(_action(step)))
        before = _digest([before.hex(), step.actor, *_written(step), _seen(step)])
    return Path(task, run.identified().id or "", value, bytes(digests))


def fork_step(one: Trajectory, other: Trajectory) -> int | None:
    """Return the index of the agent step at which two runs diverge; None if anything but the agent's output differs first.

    Unlike at a fork, a different thought or message beside the same calls counts as well.
    """
    place = -1
    for left, right in zip(one.steps, other.steps, strict=False):
        if left.actor is not right.actor:
            return None
        place += left.actor is Actor.AGENT
        if _written(left) != _written(right):
            return place if left.actor is Actor.AGENT else None
        if _seen(left) != _seen(right):
            return None
    return None


def mine_forks(
    paths: Iterable[Path],
    *,
    margin: float = 0.0,
    max_pairs_per_task: int | None = None,
    ties: bool = False,
    seed: int = 0,
) -> MinedForks:
    """Find where runs of one task diverge after the same prefix, and which branch has the higher value.

    At a fork into many branches the best is paired with the worst, the second best with the second worst, and so on.
    The order of the paths of a task does not matter.

    Args:
        paths: From `path_of`.
        margin: The difference of values must exceed it.
        max_pairs_per_task: Most forks and ties of one task; None: no bound. Runs that are used least come first, then the
            widest margins.
        ties: Whether to return forks of equal value too.
        seed: Breaks ties of rank.
    """
    bounds = Bounds(margin, max_pairs_per_task, ties, seed)
    mined = MinedForks([], [], Counter(), Counter())
    for runs in group_by_task(paths):
        tree = _tree(runs, seed)
        forked = {prefix: branches for prefix, branches in tree.items() if len(branches) > 1}
        apart = sum(not any(prefix in forked for _, prefix, _ in _steps(run)) for run in runs)
        if apart:
            mined.runs_left_out["group_of_one" if len(runs) == 1 else "no_fork"] += apart
        found = [fork for branches in forked.values() for fork in _matched(runs[0].task, branches, seed)]
        _take(found, mined, bounds)
    return mined


@dataclass
class _OpenBranch:
    """A branch while runs are added to it."""

    step: int
    total: float
    runs: int
    worst: tuple[float, int, str]
    """Value, rank among equals and id of the worst run."""
    best: tuple[float, int, str]

    @property
    def value(self) -> float:
        return gap(self.total / self.runs, 0.0)


_Branches = dict[bytes, _OpenBranch]


def _tree(runs: Sequence[Path], seed: int) -> dict[bytes, _Branches]:
    """Build the tree: prefix -> action -> branch."""
    tree: dict[bytes, _Branches] = {}
    for run in runs:
        rank = (run.value, stable_seed(seed, run.trajectory_id), run.trajectory_id)
        for step, prefix, action in _steps(run):
            branches = tree.setdefault(prefix, {})
            branch = branches.get(action)
            if branch is None:
                branches[action] = _OpenBranch(step, run.value, 1, rank, rank)
            else:
                branch.total += run.value
                branch.runs += 1
                branch.worst, branch.best = min(branch.worst, rank), max(branch.best, rank)
    return tree


def _steps(run: Path) -> Iterable[tuple[int, bytes, bytes]]:
    for step, start in enumerate(range(0, len(run.digests), 2 * _BYTES)):
        middle = start + _BYTES
        action = run.digests[middle : middle + _BYTES]
        if action != _UNTRAINED:
            yield step, run.digests[start:middle], action


def _matched(task: str, branches: _Branches, seed: int) -> Iterable[Fork]:
    """Pair the branches of a fork, the best with the worst, and so on inwards."""
    ordered = sorted(branches.items(), key=lambda branch: (branch[1].value, stable_seed(seed, branch[0].hex())))
    for i in range(len(ordered) // 2):
        worse, better = ordered[i][1], ordered[-1 - i][1]
        yield Fork(
            task,
            worse.step,
            Branch(better.best[2], better.value, better.runs),
            Branch(worse.worst[2], worse.value, worse.runs),
        )


def _take(found: Sequence[Fork], mined: MinedForks, bounds: Bounds) -> None:
    """Add the forks of one task that the bounds admit, and count the others."""
    wide = [fork for fork in found if bounds.beats(fork.better.value, fork.worse.value)]
    equal = [fork for fork in found if not fork.margin]
    taken = _spread(wide, bounds.limit, bounds.seed)
    tied = _spread(equal, None if bounds.limit is None else bounds.limit - len(taken), bounds.seed)
    if not bounds.ties:
        tied = []
    mined.forks.extend(taken)
    mined.ties.extend(tied)
    left_out = {
        "no_contrast": 0 if bounds.ties else len(equal),
        "below_margin": len(found) - len(wide) - len(equal),
        "pair_limit": len(wide) - len(taken) + (len(equal) - len(tied) if bounds.ties else 0),
    }
    mined.forks_left_out.update({reason: n for reason, n in left_out.items() if n})


def _spread(forks: Sequence[Fork], limit: int | None, seed: int) -> list[Fork]:
    pairs = {
        Pair(fork.task, fork.better.trajectory_id, fork.worse.trajectory_id, fork.margin, fork.step): fork
        for fork in forks
    }
    return [pairs[pair] for pair in spread(pairs, limit, seed)]


def _action(step: Step) -> list[Any]:
    """Return what a step does: its calls, else its message."""
    return [_call(call) for call in step.actions] or [text_of(step.message).strip()]


def _written(step: Step) -> list[Any]:
    return [_content(step.message), step.thought or "", [_call(call) for call in step.actions]]


def _seen(step: Step) -> list[Any]:
    return [[_content(observation.content), observation.is_error] for observation in step.observations]


def _call(call: Action) -> list[Any]:
    return [call.tool, call.raw_args if call.args is None else call.args]


def _content(content: Content) -> Any:
    return content if isinstance(content, str) else [part.model_dump() for part in content]


def _digest(value: Any) -> bytes:
    encoded = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return hashlib.blake2b(encoded.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest()
