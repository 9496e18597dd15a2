from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    Mamba2Config,
    Mamba2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MinPLogitsWarper,
    RwkvConfig,
    RwkvForCausalLM,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from quintain.errors import InvalidInput
from quintain.records.agent import Sampling
from quintain.records.protocols import Message, Reply, Stop, Turn
from quintain.records.trajectory import Actor, Step, Trajectory
from quintain.trainers.acting.policy import LocalPolicy
from quintain.trainers.acting.sampling import Draws, TokenLimits, pick
from quintain.trainers.models.loading import LoadedModel
from quintain.trainers.rendering.renderer import Renderer
from tiny_models import tiny_model, tiny_tokenizer
from trainers.episodes import TOOLS
from trainers.playing import GREEDY, TOKENIZER, WARM, first, ids_of, later, play, policy, spread, with_random_adapters
from trainers.templates import QWEN3

SIZES: dict[str, Any] = {"vocab_size": len(TOKENIZER), "hidden_size": 32, "num_hidden_layers": 2}
UNUSUAL: dict[str, Callable[[], Any]] = {
    "mamba": lambda: MambaForCausalLM(MambaConfig(**SIZES, state_size=8)).eval(),
    "mamba2": lambda: Mamba2ForCausalLM(
        Mamba2Config(**SIZES, num_heads=8, head_dim=8, state_size=8, n_groups=1, chunk_size=8)
    ).eval(),
    "rwkv": lambda: RwkvForCausalLM(RwkvConfig(**SIZES)).eval(),
}


def reencoded(model: Any, renderer: Renderer, name: str, n_turns: int = 3) -> list[tuple[int, ...]]:
    """The same episode with the whole history encoded anew each turn by `model.generate`."""
    ids: list[int] = []
    history: list[Message] = []
    turns: list[tuple[int, ...]] = []
    for turn in range(n_turns):
        request = (first if turn == 0 else later)(name, 1 + (ord(name) * (turn + 3)) % 11)
        if turn:
            following = renderer.continuation(history, request.messages, TOOLS)
            assert following is not None
            ids += renderer.closing(turns[-1], called=bool(history[-1].actions)) + following
        else:
            ids = renderer.opening(request.messages, TOOLS)
        out = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=GREEDY.max_new_tokens,
            do_sample=False,
            eos_token_id=sorted(renderer.end_ids),
            pad_token_id=0,
        )
        written = out[0, len(ids) :].tolist()
        read = renderer.parse(renderer.written(written))
        said = Message(role="assistant", thought=read.thought, actions=read.actions)
        history += [*request.messages, said]
        turns.append(tuple(written))
        ids += written
    return turns


@pytest.fixture
def often_ending() -> Any:
    """A model that ends some turns early, each episode at another place."""
    model = spread(tiny_model(TOKENIZER, seed=3))
    ends = TOKENIZER.eos_token_id
    with torch.no_grad():
        model.get_input_embeddings().weight[ends] *= 2.0
    return model


def test_greedy_turns_equal_those_of_plain_reencoding(often_ending: Any) -> None:
    renderer = Renderer.of(TOKENIZER)
    played = play(policy(model=often_ending), "abcd")
    lengths = {len(ids) for replies in played.values() for ids in ids_of(replies)}
    assert len(lengths) > 1, "the episodes should end their turns at different places"
    for name, replies in played.items():
        assert ids_of(replies) == reencoded(often_ending, renderer, name)


def test_episodes_of_different_temperatures_side_by_side_act_as_if_alone(often_ending: Any) -> None:
    """A greedy one among them is exactly greedy; one that names no temperature has the policy's."""
    heat = {"a": 0.0, "b": 0.4, "c": 1.0, "d": None, "e": 2.5, "f": 0.0}

    def begin(actor: LocalPolicy, names: str) -> dict[str, tuple[int, ...]]:
        turns = [first(n, ord(n) % 7).model_copy(update={"temperature": heat[n]}) for n in names]
        opened = dict(zip(names, actor.act(turns), strict=True))
        written = dict(zip(names, actor.act([later(n, 3) for n in names]), strict=True))
        return {n: sum(ids_of([opened[n], written[n]]), ()) for n in names}

    together = begin(policy(WARM, model=often_ending), "abcdef")
    for name in "abcdef":
        alone = WARM if heat[name] is None else WARM.model_copy(update={"temperature": heat[name]})
        assert begin(policy(alone, model=often_ending), name)[name] == together[name]
    assert begin(policy(GREEDY, model=often_ending), "a")["a"] == together["a"]


def test_subsets_and_mixes_of_cohorts_act_as_if_alone(often_ending: Any) -> None:
    def turn(name: str, number: int) -> Turn:
        return (first if number == 0 else later)(name, 1 + (ord(name) * (number + 3)) % 11)

    actor = policy(WARM, model=often_ending)
    got: dict[str, list[Reply]] = {name: [] for name in "abcd"}
    for batch in ("ab", "b", "cd", "ac", "bda", "c", "d"):
        turns = [turn(name, len(got[name])) for name in batch]
        for name, reply in zip(batch, actor.act(turns), strict=True):
            got[name].append(reply)
        if batch == "bda":
            actor.close("a")
            actor.close("b")
    for name in "abcd":
        assert ids_of(got[name]) == ids_of(play(policy(WARM, model=often_ending), name)[name])


def test_closed_episodes_leave_the_cache_and_each_has_one_turn_a_call() -> None:
    actor = policy()
    play(actor, "abcd", n_turns=1)
    for name in "bcd":
        actor.close(name)
    actor.close("never seen")
    actor.act([later("a", 3)])
    batch = actor._episodes["a"].row.batch
    assert batch is not None
    assert batch.cache.layers[0].keys.shape[0] == len(batch.starts) == 1
    actor.close("a")
    assert actor._episodes == {}
    with pytest.raises(InvalidInput, match="one turn"):
        actor.act([first("a", 1), first("a", 1)])


def logprobs_of(model: Any, opening: list[int], turn: tuple[int, ...]) -> torch.Tensor:
    """The turn's log-probs by a plain forward pass of the whole row, as a trainer computes them."""
    ids = torch.tensor([opening + list(turn)])
    with torch.no_grad():
        scored = model(ids).logits[0].log_softmax(-1)
    return scored[len(opening) - 1 : -1].gather(1, ids[0, len(opening) :, None])[:, 0]


@pytest.mark.parametrize(
    "adapt", [lambda model: model, partial(with_random_adapters, dropout=0.5)], ids=["full", "lora"]
)
def test_the_model_under_training_acts_by_its_weights_of_the_moment_and_records_its_own_logprobs(adapt: Any) -> None:
    """At a temperature of 1.7 too, the log-probs are the model's own, at temperature 1."""
    model = adapt(spread(tiny_model(TOKENIZER)))
    model.activation_checkpointing_enable()
    model.train()
    head = model.get_output_embeddings().eval()  # a part that the trainer keeps out of training mode
    loaded, renderer = LoadedModel(model, TOKENIZER, 1024), Renderer.of(TOKENIZER)
    turn = first("a", 3)
    written = []
    for _ in range(2):
        hot = Sampling(temperature=1.7, max_new_tokens=12)
        reply = LocalPolicy(loaded, renderer, hot, seed=7).act([turn, first("b", 8)])[0]
        assert model.training
        assert not head.training
        assert reply.sampled
        assert reply.sampled.logprobs
        model.eval()
        expected = logprobs_of(model, renderer.opening(turn.messages, TOOLS), reply.sampled.token_ids)
        model.train()
        head.eval()
        assert (torch.tensor(reply.sampled.logprobs) - expected).abs().max() < 5e-5
        written.append(reply.sampled.token_ids)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter) * parameter.requires_grad)
    assert written[0] != written[1]
    loss = model(torch.tensor([[5, 6, 7]])).logits.float().sum()
    loss.backward()  # acting has left nothing in the model that a backward pass cannot use


@pytest.fixture
def fed() -> Iterator[tuple[Any, list[tuple[int, int]]]]:
    """A model and the shapes [rows, columns] of what is fed to it."""
    model = spread(tiny_model(TOKENIZER))
    policy(model=model)  # how it can be decoded is found out now, and once
    shapes: list[tuple[int, int]] = []
    hook = model.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    yield model, shapes
    hook.remove()


def test_an_opening_is_encoded_once_for_all_attempts(fed: tuple[Any, list[tuple[int, int]]]) -> None:
    """Twelve episodes of three tasks: one row for what all share, three rows for the rest, then one token each."""
    model, shapes = fed
    turns = [first(f"{words}/{attempt}", words) for words in (3, 7, 9) for attempt in range(4)]
    lengths = [len(Renderer.of(TOKENIZER).opening(turn.messages, TOOLS)) for turn in turns]
    policy(WARM, model=model).act(turns)
    (one, shared), (three, rest), (twelve, token) = shapes[:3]
    assert (one, three, twelve, token) == (1, 3, 12, 1)
    assert shared + rest + 1 == max(lengths)
    shapes.clear()
    policy(WARM, model=model).act([first(f"3/{attempt}", 3) for attempt in range(4)])
    assert shapes[:2] == [(1, min(lengths) - 1), (4, 1)]


def test_attempts_that_share_their_opening_write_what_each_writes_alone(often_ending: Any) -> None:
    def attempt(name: str) -> Turn:
        """Names are TASK/ATTEMPT; tasks have 3, 1 and 2 attempts."""
        words = 2 + 3 * int(name[0])
        return first(name, words).model_copy(update={"seed": int(name[-1])})

    names = ["0/0", "1/0", "0/1", "2/0", "0/2", "2/1"]
    together = policy(WARM, model=often_ending)
    written = [together.act([attempt(name) for name in names]), together.act([later(name, 2) for name in names])]
    for place, name in enumerate(names):
        alone = policy(WARM, model=often_ending)
        expected = [*alone.act([attempt(name)]), *alone.act([later(name, 2)])]
        assert ids_of([turn[place] for turn in written]) == ids_of(expected)


def test_a_turn_goes_on_without_the_rows_that_are_done(fed: tuple[Any, list[tuple[int, int]]]) -> None:
    """One token in 16 ends a turn here. Rows fall away by halves, and all are back in the next turn, as if alone."""
    model, shapes = fed
    model.generation_config.eos_token_id = list(range(0, len(TOKENIZER), 16))
    sampling = Sampling(temperature=3.0, max_new_tokens=24)
    together = play(policy(sampling, model=model), "abcdefgh", n_turns=2)
    starts = [place for place, (_, columns) in enumerate(shapes) if columns > 1][1:]
    for start, end in zip(starts, [*starts[1:], len(shapes)], strict=True):
        rows = [n for n, _ in shapes[start:end]]
        assert rows[0] == 8
        assert all(later == n or later <= n // 2 for n, later in pairwise(rows))
        assert rows[-1] < 8
    for name in "ace":
        assert ids_of(play(policy(sampling, model=model), name, n_turns=2)[name]) == ids_of(together[name])


def test_a_recorded_episode_renders_to_the_ids_that_the_policy_saw() -> None:
    actor = policy(WARM)
    replies = play(actor, "abc")["b"]
    steps = [
        Step(actor=Actor.SYSTEM, message="You are an agent."),
        Step(actor=Actor.USER, message=first("b", 1 + (ord("b") * 3) % 11).messages[1].content),
    ]
    for turn, reply in enumerate(replies):
        read = {"message": reply.text} if reply.error else {"thought": reply.thought, "actions": reply.actions}
        steps.append(Step(actor=Actor.AGENT, sampled=reply.sampled, **read))
        if turn < 2:
            steps.append(
                Step(actor=Actor.USER, message=later("b", 1 + (ord("b") * (turn + 4)) % 11).messages[0].content)
            )
    rows = Renderer.of(TOKENIZER).render(Trajectory(tools=TOOLS, steps=tuple(steps)), 4096).rows
    assert [row.token_ids.tolist() for row in rows] == [actor._episodes["b"].ids]


def test_an_episode_that_outgrows_the_context_stops_and_the_others_go_on() -> None:
    actor = policy(context=260)
    replies = actor.act([first("a", 5), first("b", 200)])
    assert [reply.stop for reply in replies][1] is Stop.CONTEXT
    assert replies[0].sampled
    assert replies[1].text == ""
    assert replies[1].sampled is None
    narrow = policy(context=len(Renderer.of(TOKENIZER).opening(first("a", 5).messages, TOOLS)) + 3)
    reply = narrow.act([first("a", 5)])[0]
    assert reply.stop is Stop.LENGTH
    assert reply.sampled
    assert len(reply.sampled.token_ids) == 3


def test_a_template_that_rewrites_history_is_encoded_from_scratch() -> None:
    tokenizer = tiny_tokenizer(QWEN3)
    model = spread(tiny_model(tokenizer))
    actor = policy(tokenizer=tokenizer, model=model)
    play(actor, "ab", n_turns=2)
    episode = actor._episodes["a"]
    fresh = Renderer.of(tokenizer).opening(episode.messages[:-1], TOOLS)
    assert episode.ids[: len(fresh)] == fresh


@pytest.mark.parametrize("family", UNUSUAL)
def test_a_model_whose_cache_is_of_another_kind_records_its_own_logprobs(family: str) -> None:
    """States that are not kept, or are lost when several tokens come at a time. test_side_by_side.py has windows."""
    model = UNUSUAL[family]()
    actor = policy(Sampling(temperature=1.0, max_new_tokens=8), model=model)
    played = play(actor, "ab", n_turns=2)
    for name, replies in played.items():
        ids, end = actor._episodes[name].ids, len(actor._episodes[name].ids)
        with torch.no_grad():
            logs = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].log_softmax(-1)
        last = replies[-1].sampled
        assert last is not None
        assert last.logprobs is not None
        start = end - len(last.token_ids)
        own = [float(logs[t - 1, ids[t]]) for t in range(start, end)]
        assert last.logprobs == pytest.approx(own, abs=1e-3)


def test_picking_inverts_the_cumulative_distribution() -> None:
    """Chances 0.5, 0.3, 0.2: a uniform number below 0.5 picks token 0, below 0.8 token 1, else token 2.

    With top_p 0.6 the first two stay (0.5 alone is less than 0.6), as 0.625 and 0.375 of what is left. At temperature
    0.5 the chances are squared: 0.25, 0.09, 0.04 of 0.38, so token 0 ends at 0.658.
    """
    logits = torch.tensor([0.5, 0.3, 0.2]).log().repeat(4, 1)

    def picked(uniform: list[float], temperature: list[float], top_p: float = 1.0) -> tuple[list[int], torch.Tensor]:
        draws = Draws(*(torch.tensor(numbers, dtype=torch.float64) for numbers in (uniform, temperature)))
        token, logprob = pick(logits, draws, TokenLimits(top_p))
        return token.tolist(), logprob

    tokens, logprob = picked([0.49, 0.51, 0.79, 0.81], [1.0] * 4)
    assert tokens == [0, 1, 1, 2]
    assert torch.allclose(logprob, torch.tensor([math.log(p) for p in (0.5, 0.3, 0.3, 0.2)]))
    assert picked([0.62, 0.63, 0.99, 1.0 - 2**-53], [1.0] * 4, 0.6)[0] == [0, 1, 1, 1]
    assert picked([0.65, 0.66, 0.89, 0.9], [0.5] * 4)[0] == [0, 1, 1, 2]
    assert pick(logits, None)[0].tolist() == [0, 0, 0, 0]
    tokens, logprob = picked([0.81, 0.81, 0.65, 0.79], [1.0, 0.0, 0.5, 1.0])
    assert tokens == [2, 0, 0, 1]
    assert torch.allclose(logprob, torch.tensor([math.log(p) for p in (0.2, 0.5, 0.5, 0.3)]))


def test_limits_on_tokens_by_hand() -> None:
    """Chances 0.4, 0.3, 0.2, 0.1, each row drawn at the end of the cumulative distribution: the last token that is left.

    - top_k 3 leaves three; with top_p 0.7 of these 0.9 (0.63), only two: 0.4 is less, 0.7 is not.
    - min_p 0.5 leaves tokens of at least 0.2, and 0.6 those of at least 0.24.
    - At temperature 0.5 the squares are 16, 9, 4 and 1 of 30: min_p 0.5 leaves two.
    """
    logits, end = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log(), torch.tensor([1 - 2**-53], dtype=torch.float64)
    cases = [
        (TokenLimits(), 1.0, 3),
        (TokenLimits(top_k=3), 1.0, 2),
        (TokenLimits(top_k=9), 1.0, 3),
        (TokenLimits(top_k=3, top_p=0.7), 1.0, 1),
        (TokenLimits(min_p=0.49), 1.0, 2),
        (TokenLimits(min_p=0.6), 1.0, 1),
        (TokenLimits(min_p=0.5), 0.5, 1),
        (TokenLimits(top_k=1), 1.0, 0),
    ]
    for limits, temperature, last in cases:
        draws = Draws(end, torch.tensor([temperature], dtype=torch.float64))
        token, logprob = pick(logits, draws, limits)
        assert token.item() == last, (limits, temperature)
        assert logprob.item() == pytest.approx(float(logits[0, last])), "the log-prob is the model's own"


@pytest.mark.parametrize("limits", [(0.8, 0, 0.0), (1.0, 7, 0.0), (1.0, 0, 0.2), (0.7, 9, 0.05)])
def test_the_tokens_that_are_left_are_those_of_transformers(limits: tuple[float, int, float]) -> None:
    """Each row draws each of its tokens about once in 400 draws at even distances; transformers' processors give the set."""
    top_p, top_k, min_p = limits
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(3)) * 1.5
    warpers = [
        *([TopKLogitsWarper(top_k)] if top_k else []),
        *([TopPLogitsWarper(top_p)] if top_p < 1 else []),
        *([MinPLogitsWarper(min_p)] if min_p else []),
    ]
    theirs = logits / 0.9
    for warper in warpers:
        theirs = warper(None, theirs)
    n = 400
    uniform = ((torch.arange(n, dtype=torch.float64) + 0.5) / n).repeat_interleave(6)
    draws = Draws(uniform, torch.full((6 * n,), 0.9, dtype=torch.float64))
    tokens = pick(logits.repeat(n, 1), draws, TokenLimits(*limits))[0].view(n, 6)
    chances = theirs.softmax(-1)
    for row in range(6):
        shares = torch.bincount(tokens[:, row], minlength=40) / n
        assert torch.allclose(shares, chances[row].float(), atol=2 / n)
        assert (shares[~torch.isfinite(theirs[row])] == 0).all()


def asked(name: str) -> Turn:
    return Turn(episode_id=name, messages=(Message(role="user", content=f"{name} " * 6),), tools=TOOLS)


def reciting(texts: dict[str, str], renderer: Renderer) -> Any:
    """A model that has learnt by heart what to write in each episode, and writes no end token."""
    model = tiny_model(TOKENIZER)
    openings = [renderer.opening(asked(name).messages, TOOLS) for name in texts]
    rows = [
        torch.tensor(opening + renderer.writer.encode(text))
        for opening, text in zip(openings, texts.values(), strict=True)
    ]
    labels = [row.clone() for row in rows]
    for label, opening in zip(labels, openings, strict=True):
        label[: len(opening)] = -100
    batch = {
        "input_ids": pad_sequence(rows, batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=-100),
    }
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


def test_a_turn_without_an_end_token_ends_behind_its_calls_or_before_the_environments_part() -> None:
    """What was sampled behind is neither recorded nor read in the next turn; a turn within its own part goes on."""
    renderer = Renderer.of(TOKENIZER, "react")
    call = 'look\nAction: search {"query": "mango"}'
    texts = {
        "a": f"{call}\nObservation: lamp has id 12",
        "b": "the price is 40\n<|im_start|>user\nthe stock",
        "c": f'{call}\nAction: search {{"query": "lamp"}}',
    }
    model = reciting(texts, renderer)
    sampling = Sampling(max_new_tokens=min(len(renderer.writer.encode(text)) for text in texts.values()))
    actor = LocalPolicy(LoadedModel(model, TOKENIZER, 1024), renderer, sampling)
    replies = actor.act([asked(name) for name in texts])
    assert [reply.text.rstrip("\n") for reply in replies[:2]] == [call, "the price is 40"]
    assert [reply.stop for reply in replies] == [Stop.END, Stop.END, Stop.LENGTH]
    assert [[action.tool for action in reply.actions] for reply in replies[:2]] == [["search"], []]
    assert replies[2].text.startswith(f"{call}\nAction")
    for name, before, reply in zip(texts, replies, actor.act([later(name, 3) for name in texts]), strict=True):
        assert before.sampled
        assert reply.sampled
        answer = Message(role="assistant", thought=before.thought, actions=before.actions)
        if before.error:
            answer = Message(role="assistant", content=before.text)
        following = renderer.continuation([*asked(name).messages, answer], later(name, 3).messages, TOOLS)
        row = [*renderer.opening(asked(name).messages, TOOLS), *before.sampled.token_ids, *renderer.end_turn]
        own = logprobs_of(model, [*row, *(following or [])], reply.sampled.token_ids)
        assert reply.sampled.logprobs == pytest.approx(own.tolist(), abs=5e-5)
