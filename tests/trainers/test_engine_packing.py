from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from quintain.trainers.data.streams import Example, TokenRow, streams_of, token_row
from quintain.trainers.engine.packing import Plan, Segment, computed_tokens, micro_batches, pack


def row(ids: Sequence[int], supervised: Sequence[int] | None = None) -> TokenRow:
    """A row supervised at the places given; by default at all but the first."""
    places = range(1, len(ids)) if supervised is None else supervised
    return token_row(ids, [t in places for t in range(len(ids))])


def random_rows(seed: int) -> list[TokenRow]:
    """Rows over three tokens, so that they share prefixes of all lengths and coincide now and then."""
    draw = random.Random(seed)
    rows = []
    for _ in range(draw.randint(1, 9)):
        ids = [draw.randrange(3) for _ in range(draw.randint(1, 12))]
        rows.append(row(ids, [t for t in range(1, len(ids)) if draw.random() < 0.5]))
    return rows


def visible(plan: Plan) -> list[list[int]]:
    """For each packed row the token ids that it attends to, itself last."""
    seen: list[list[int]] = [[] for _ in range(len(plan.token_ids))]
    for segment in plan.segments:
        before = [t for start, end in segment.ancestors for t in range(start, end)]
        for t in range(segment.start, segment.end):
            seen[t] = [int(plan.token_ids[s]) for s in [*before, *range(segment.start, t + 1)]]
    return seen


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_every_supervised_token_is_predicted_from_exactly_its_own_prefix(seed: int, share: bool) -> None:
    rows = random_rows(seed)
    plan = pack(rows, share=share)
    seen = visible(plan)
    expected = [(r.token_ids[:t].tolist(), int(r.token_ids[t])) for r in rows for t in r.places]
    got = [(seen[plan.select[s]], int(t)) for s, t in zip(plan.source, plan.target, strict=True)]
    assert got == expected
    assert plan.positions.tolist() == [len(prefix) - 1 for prefix in seen]
    assert len(plan.token_ids) == computed_tokens(rows, share=share)


@pytest.mark.parametrize("seed", range(10))
def test_each_distinct_prefix_is_computed_once(seed: int) -> None:
    rows = random_rows(seed)
    plan = pack(rows)
    needed = {tuple(r.token_ids[:t].tolist()) for r in rows for p in r.places for t in range(1, p + 1)}
    assert sorted(map(tuple, visible(plan))) == sorted(needed)
    assert plan.select.tolist() == sorted(set(plan.select.tolist()))
    assert [s.start for s in plan.segments[1:]] == [s.end for s in plan.segments[:-1]]
    assert len(plan.segments) <= len(rows)


def test_a_pair_with_a_common_prompt_is_one_trunk_and_one_branch() -> None:
    """Prompt 5 6 7, answers 1 2 3 and 4 2 3; the last token of each is no input. So 5 6 7 1 2 and 4 2 behind 5 6 7.

    Row 2 (the 7) predicts both first answer tokens: six targets from five hidden states.
    """
    plan = pack([row([5, 6, 7, 1, 2, 3], [3, 4, 5]), row([5, 6, 7, 4, 2, 3], [3, 4, 5])])
    assert plan.token_ids.tolist() == [5, 6, 7, 1, 2, 4, 2]
    assert plan.positions.tolist() == [0, 1, 2, 3, 4, 3, 4]
    assert plan.segments == (Segment(0, 5), Segment(5, 7, ((0, 3),)))
    assert plan.select.tolist() == [2, 3, 4, 5, 6]
    assert plan.source.tolist() == [0, 1, 2, 0, 3, 4]
    assert plan.target.tolist() == [1, 2, 3, 4, 2, 3]


def test_turns_of_one_run_are_one_segment_without_ancestors() -> None:
    """Row k holds the run up to turn k: each is a prefix of the next, so 8 + 13 + 20 tokens become 19."""
    run = list(range(1, 21))
    plan = pack([row(run[:8], [6, 7]), row(run[:13], [11, 12]), row(run, [18, 19])])
    assert plan.segments == (Segment(0, 19),)
    assert plan.token_ids.tolist() == run[:19]
    assert plan.target.tolist() == [run[t] for t in (6, 7, 11, 12, 18, 19)]


PLANS: dict[str, tuple[list[TokenRow], list[int], list[int], list[int]]] = {
    "equal rows": ([row([1, 2, 3]), row([1, 2, 3])], [1, 2], [0, 1, 0, 1], [2, 3, 2, 3]),
    "other first tokens": ([row([1, 9, 9]), row([2, 9, 9])], [1, 9, 2, 9], [0, 1, 2, 3], [9, 9, 9, 9]),
    "tokens behind the last supervised one": ([row([1, 2, 3, 4, 5, 6], [2]), row([7, 8], [])], [1, 2], [0], [3]),
    "nothing supervised": ([row([1, 2, 3], [])], [], [], []),
    "a large id": ([row([1, 200_000, 3]), row([1, 256, 3])], [1, 256, 200_000], [0, 2, 0, 1], [200_000, 3, 256, 3]),
}
"""Rows; computed ids; for each supervised token the entry of `select` that predicts it; the supervised tokens."""


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_special_rows(name: str) -> None:
    rows, ids, source, target = PLANS[name]
    plan = pack(rows)
    assert (plan.token_ids.tolist(), plan.source.tolist(), plan.target.tolist()) == (ids, source, target)
    assert len(plan.segments) == len({r.token_ids[0] for r in rows if r.n_supervised}) + (name == "a large id")


def example(*rows: TokenRow, member: tuple[int, ...] | None = None, divisible: bool = True, key: str = "") -> Example:
    members = member or tuple(range(len(rows)))
    return Example(rows, members, tuple(float(m) for m in range(max(members) + 1)), 2.0, key, divisible)


def lengths(seed: int, n: int = 40) -> list[Example]:
    """Examples of 2 to 60 computed tokens, no two of which share a prefix."""
    draw = random.Random(seed)
    return [example(row([100 + i, *range(draw.randint(2, 60))]), key=str(i)) for i in range(n)]


@pytest.mark.parametrize("seed", range(5))
def test_micro_batches_keep_to_the_budget_and_hold_every_example_once(seed: int) -> None:
    examples = lengths(seed)
    batches = micro_batches(examples, 64)
    sizes = [computed_tokens([r for e in batch for r in e.rows]) for batch in batches]
    assert max(sizes) <= 64
    assert sorted(int(e.key) for batch in batches for e in batch) == list(range(40))
    assert all([int(e.key) for e in batch] == sorted(int(e.key) for e in batch) for batch in batches)
    assert len(batches) <= 1.25 * sum(sizes) / 64 + 1
    assert [[e.key for e in b] for b in micro_batches(examples, 64)] == [[e.key for e in b] for b in batches]


def test_micro_batches_count_shared_tokens_once() -> None:
    """Two members of 31 tokens that share 20: 30 computed apart each, 40 together (20 + 10 + 10)."""
    prompt = list(range(20))
    group = example(row([*prompt, *range(30, 41)]), row([*prompt, *range(50, 61)]))
    assert computed_tokens(group.rows) == 40
    assert len(micro_batches([group], 40)) == 1
    assert len(micro_batches([group], 39)) == 2
    assert len(micro_batches([group], 40, share=False)) == 2


def test_a_divisible_example_larger_than_the_budget_is_split_by_members() -> None:
    """Members of 10, 10 + 10 (two rows), 10 and 10 computed tokens against a budget of 20."""
    rows = [row([k, *range(60, 70)]) for k in range(5)]
    whole = example(*rows, member=(0, 1, 1, 2, 3), key="k")
    parts = [part for batch in micro_batches([whole], 20) for part in batch]
    assert [part.member for part in parts] == [(0,), (0, 0), (0, 1)]
    assert [part.value for part in parts] == [(0.0,), (1.0,), (2.0, 3.0)]
    assert [list(part.rows) for part in parts] == [[rows[0]], rows[1:3], rows[3:]]
    assert {(part.weight, part.key) for part in parts} == {(2.0, "k")}


def test_an_indivisible_example_stays_whole_and_alone_where_it_is_too_large() -> None:
    pair = example(row([1, *range(60, 75)]), row([2, *range(60, 75)]), divisible=False)
    small = example(row([3, 4, 5]))
    assert micro_batches([small, pair], 20) == [[small], [pair]]


def test_a_batch_gives_streams_and_targets_in_one_order() -> None:
    """Each token's id stands in its step_index too, so the stream must equal the targets."""
    rows = [replace(r, step_index=r.token_ids) for seed in range(6) for r in random_rows(seed)]
    for batch in micro_batches([example(*rows[i : i + 3]) for i in range(0, len(rows), 3)], 25):
        targets = pack([r for e in batch for r in e.rows]).target
        assert streams_of(batch).step_index.tolist() == targets.tolist()
