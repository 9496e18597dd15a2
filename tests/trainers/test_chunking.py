from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.records.trajectory import Action, Actor, Observation, SampledTokens, Step, Task, Trajectory
from quintain.trainers.data.chunking import chunk
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.rendering.renderer import Renderer, Rendering
from tiny_models import tiny_tokenizer
from trainers.episodes import TOOLS, episode
from trainers.templates import GEMMA, GEMMA_SPECIAL, QWEN3

CHATML = Renderer.of(tiny_tokenizer())
STRIPPING = Renderer.of(tiny_tokenizer(QWEN3))
STRICT = Renderer.of(tiny_tokenizer(GEMMA, special=GEMMA_SPECIAL, eos="<eos>", bos="<bos>"))


def with_steps(whole: Trajectory, *steps: Step) -> Trajectory:
    return whole.model_copy(update={"steps": steps})


def trained(rows: list[TokenRow]) -> list[int]:
    """The steps that are in the loss, row by row."""
    return [step for row in rows for step in dict.fromkeys(row.step_index[row.places].tolist())]


def shown(rows: list[TokenRow]) -> list[list[int]]:
    """The agent steps that each row shows, masked ones included."""
    return [[step for step in dict.fromkeys(row.step_index.tolist()) if step >= 0] for row in rows]


def equal(a: TokenRow, b: TokenRow) -> bool:
    pairs = [(vars(a)[name], vars(b)[name]) for name in vars(a)]
    return all(x is y is None or np.array_equal(x, y) for x, y in pairs)


def lengths_of(trajectory: Trajectory, renderer: Renderer = CHATML) -> list[int]:
    """Tokens up to the end of each agent turn, where the whole trajectory is one row."""
    row = renderer.render(trajectory, 100_000).rows[0]
    return [int(np.flatnonzero(row.step_index == step)[-1]) + 1 for step in dict.fromkeys(trained([row]))]


def test_a_trajectory_that_fits_is_one_row_as_rendered() -> None:
    whole = CHATML.render(episode(4), 4096).rows
    chunked = chunk(CHATML, episode(4), len(whole[0]), overlap=1)
    assert len(chunked.rows) == 1
    assert chunked[1:] == (0, None)
    assert equal(chunked.rows[0], whole[0])


def test_chunks_repeat_the_opening_and_the_overlap_and_train_the_rest() -> None:
    """One token less than the whole needs two chunks: steps 2-5, and 6 with `overlap` earlier steps as context."""
    budget = lengths_of(episode(5))[-1] - 1
    for overlap, second in ((0, [6]), (1, [5, 6]), (3, [3, 4, 5, 6])):
        result = chunk(CHATML, episode(5), budget, overlap=overlap, weight=0.5)
        assert result[1:] == (0, None)
        assert shown(result.rows) == [[2, 3, 4, 5], second]
        assert [trained([row]) for row in result.rows] == [[2, 3, 4, 5], [6]]
        text = CHATML.decode(result.rows[1].token_ids)
        assert text.startswith("<|im_start|>system\nYou are an agent.")
        assert "price of the mango?<|im_end|>" in text
        assert ("result 3: id 12" in text) == (overlap > 0)
        assert {*result.rows[1].weight[result.rows[1].places].tolist()} == {0.5}
        assert not result.rows[1].weight[~result.rows[1].supervised].any()


def test_a_user_turn_stays_with_the_agent_turn_that_answers_it() -> None:
    steps = [Step(actor=Actor.SYSTEM, message="Be brief.")]
    for turn in range(4):
        steps += [Step(actor=Actor.USER, message=f"question {turn}"), Step(actor=Actor.AGENT, message=f"answer {turn}")]
    whole = Trajectory(steps=tuple(steps))
    result = chunk(CHATML, whole, lengths_of(whole)[1], overlap=0)
    texts = [CHATML.decode(row.token_ids) for row in result.rows]
    assert trained(result.rows) == [2, 4, 6, 8]
    assert all(f"question {turn}<|im_end|>" in text for text, turn in zip(texts[1:], (2, 3), strict=False))
    assert all(text.count("question 0") == 1 for text in texts)


def test_the_tasks_prompt_opens_every_chunk_where_no_user_spoke() -> None:
    whole = with_steps(episode(6), *episode(6).steps[2:])
    result = chunk(CHATML, whole, lengths_of(whole)[2], overlap=1)
    assert len(result.rows) > 1
    assert all("price of the mango?<|im_end|>" in CHATML.decode(row.token_ids) for row in result.rows)
    assert trained(result.rows) == list(range(6))


def test_a_step_too_long_even_alone_is_counted_and_the_others_are_trained() -> None:
    steps = list(episode(5).steps)
    steps[3] = steps[3].model_copy(update={"thought": "very long " * 100})
    whole = with_steps(episode(5), *steps)
    short = lengths_of(episode(5))
    result = chunk(CHATML, whole, short[2], overlap=1)
    assert result.truncated_turns == 1
    assert result.dropped is None
    assert trained(result.rows) == [2, 4, 5, 6]
    # The long step cannot be shown as context either: step 4 stands after the opening alone.
    assert shown(result.rows)[1][0] == 4


def test_the_overlap_shrinks_before_a_step_is_given_up() -> None:
    """Each step fits with one earlier step and not with two: an overlap of 4 is halved to 2, then to 1."""
    budget = lengths_of(episode(6))[1]
    result = chunk(CHATML, episode(6), budget, overlap=4)
    assert result.truncated_turns == 0
    assert trained(result.rows) == [2, 3, 4, 5, 6, 7]
    assert shown(result.rows) == [[2, 3], [3, 4], [4, 5], [5, 6], [6, 7]]


def test_an_opening_that_fills_the_row_leaves_nothing() -> None:
    assert chunk(CHATML, episode(4), 20, overlap=2) == ([], 4, "too_long")


def test_what_render_drops_is_dropped_with_the_same_reason() -> None:
    masked = with_steps(episode(2), *(step.model_copy(update={"train": False}) for step in episode(2).steps))
    assert chunk(CHATML, masked, 64, overlap=1).dropped == "nothing_supervised"
    assert chunk(CHATML, episode(2), 64, overlap=1, weight=0.0).dropped == "zero_weight"
    called = Step(actor=Actor.AGENT, actions=(Action(tool="search", args={}),))
    twice = (called, Step(actor=Actor.AGENT, message="second"))
    assert chunk(STRICT, Trajectory(steps=twice), 64, overlap=1).dropped == "template_refused"


def test_chunks_keep_sampled_ids_and_their_log_probs() -> None:
    whole = episode(6)
    ids = tuple(CHATML.tokenizer.encode("It  costs 40 .", add_special_tokens=False))
    logprobs = tuple(-0.5 - i for i in range(len(ids)))
    sampled = SampledTokens(token_ids=ids, logprobs=logprobs, tokenizer=CHATML.fingerprint)
    last = whole.steps[-1].model_copy(update={"sampled": sampled})
    whole = with_steps(whole, *whole.steps[:-1], last)
    result = chunk(CHATML, whole, lengths_of(whole)[3], overlap=1)
    row = result.rows[-1]
    assert len(result.rows) > 1
    assert tuple(row.token_ids[row.step_index == 7].tolist()) == ids
    assert row.old_logprob is not None
    assert row.old_logprob[row.step_index == 7].tolist() == list(logprobs)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Agent turns of varying length, some masked or copied, some with calls, with users in between."""
    steps = [Step(actor=Actor.SYSTEM, message="Help.")] * draw(st.integers(0, 1))
    steps += [Step(actor=Actor.USER, message="begin")] * draw(st.integers(0, 1))
    for turn in range(draw(st.integers(1, 9))):
        if steps and steps[-1].actor is Actor.AGENT and not steps[-1].observations:
            steps.append(Step(actor=Actor.USER, message="go on " * draw(st.integers(0, 6))))
        call = draw(st.booleans())
        said = f"step {turn} " + "word " * draw(st.integers(0, 30))
        steps.append(
            Step(
                actor=Actor.AGENT,
                thought=said.strip(),
                actions=(Action(tool="search", args={"query": str(turn)}),) * call,
                observations=(Observation(content="seen " * draw(st.integers(0, 20))),) * call,
                train=draw(st.sampled_from([None, None, True, False])),
                copied_context=draw(st.integers(0, 5)) == 0,
            )
        )
    return Trajectory(tools=TOOLS, task=Task(prompt="find it"), steps=tuple(steps))


def trainable(trajectory: Trajectory) -> list[int]:
    return [
        i
        for i, step in enumerate(trajectory.steps)
        if step.actor is Actor.AGENT and step.train is not False and not step.copied_context
    ]


@settings(max_examples=25)
@given(trajectories(), st.integers(60, 500), st.integers(0, 4), st.sampled_from([CHATML, STRIPPING, STRICT]))
def test_every_trainable_step_is_trained_once_within_the_budget_or_counted(
    trajectory: Trajectory, budget: int, overlap: int, renderer: Renderer
) -> None:
    result = chunk(renderer, trajectory, budget, overlap=overlap)
    if result.dropped in {"nothing_supervised", "template_refused"}:
        assert result.dropped == renderer.render(trajectory, budget).dropped
        return
    steps = trained(result.rows)
    assert steps == sorted(set(steps))
    assert set(steps) <= set(trainable(trajectory))
    assert len(steps) + result.truncated_turns == len(trainable(trajectory))
    assert all(len(row) <= budget for row in result.rows)
    for row in result.rows:
        assert (row.weight == row.supervised).all()
    assert supervised_ids(result, steps) == supervised_ids(renderer.render(trajectory, 100_000), steps)
    _left_out_only_where_alone_too_long(renderer, trajectory, budget, set(trainable(trajectory)) - set(steps))


def supervised_ids(rendering: Rendering, steps: list[int]) -> dict[int, list[int]]:
    return {
        step: row.token_ids[row.supervised & (row.step_index == step)].tolist()
        for row in rendering.rows
        for step in steps
        if step in row.step_index[row.places]
    }


def _left_out_only_where_alone_too_long(
    renderer: Renderer, trajectory: Trajectory, budget: int, left_out: set[int]
) -> None:
    """A step is left out only if the opening, what led to it, and the step itself are longer than a row."""
    turns = [i for i, step in enumerate(trajectory.steps) if step.actor is Actor.AGENT]
    for step in left_out:
        before = turns[turns.index(step) - 1] + 1 if step != turns[0] else turns[0]
        alone = (*trajectory.steps[: turns[0]], *trajectory.steps[before : step + 1])
        rows = renderer.render(trajectory.model_copy(update={"steps": alone}), 100_000).rows
        assert Counter(len(row) > budget for row in rows) == {True: 1}
