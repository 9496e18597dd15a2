"""Models whose rotary factors follow the length of a row: no row is moved by its neighbours, or by earlier rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from quintain.records.agent import Sampling
from quintain.records.hyperparameters.methods import GRPOConfig, SFTConfig
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.rotary import Rotary
from quintain.trainers.loop.report import changing_positions
from tiny_models import TINY_SIZES
from trainers.own_forward import distance, gradients, make, own_logprobs, row, weights
from trainers.playing import TOKENIZER, ids_of, play, policy, spread

BORDER = 30


def long_rope(border: int, width: int = 4) -> dict[str, Any]:
    return {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * width,
        "long_factor": [3.0] * width,
        "original_max_position_embeddings": border,
    }


def phi3(border: int = BORDER) -> Any:
    """Its class attribute wins over what the rotary parameters say of the border."""
    rope = long_rope(1000)
    settings = {"sliding_window": None, "original_max_position_embeddings": border, "rope_parameters": rope}
    return make(Phi3Config, Phi3ForCausalLM, **settings)


MODELS = {
    "longrope": phi3,
    "longrope pruned": lambda: make(Qwen2Config, Qwen2ForCausalLM, rope_parameters=long_rope(BORDER)),
    "dynamic": lambda: make(
        Qwen2Config,
        Qwen2ForCausalLM,
        max_position_embeddings=BORDER,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    ),
}


def rows_on_both_sides() -> list[TokenRow]:
    """21, 57, 40, 28, 30, 31 and 57 tokens, most of them with a prefix of others; the third is supervised below 20 only."""
    some = torch.randint(2, 61, (7, 40), generator=torch.Generator().manual_seed(0)).tolist()
    prompt, deeper = some[0][:12], some[1][:16]
    return [
        row([*prompt, *some[2][:9]]),
        row([*prompt, *deeper, *some[3][:29]]),
        row([*prompt, *deeper, *some[4][:12]], lambda t: t < 20),
        row([*prompt, *deeper]),
        row([*prompt, *deeper, 1, 2], lambda t: t > 25),
        row([*prompt, *deeper, 1, 2, 5], lambda t: t > 25),
        row([*some[5], *some[6][:17]]),
    ]


def alone(model: Any, rows: Sequence[TokenRow]) -> torch.Tensor:
    """The model's own log-probs of each row, with dynamic factors as in a model that has seen no other row."""
    scored = []
    for r in rows:
        model.model.rotary_emb(
            torch.zeros(1), torch.zeros(1, 1, dtype=torch.long)
        )  # a short row: transformers' own reset
        scored.append(own_logprobs(model, [r]))
    return torch.cat(scored)


@pytest.mark.parametrize(
    ("family", "path"),
    [
        *((family, "packed") for family in MODELS),
        ("longrope", "padded"),
        ("dynamic", "padded"),
        ("longrope", "one pass"),
    ],
)
def test_rows_on_both_sides_of_a_border_get_what_each_gets_alone(family: str, path: str) -> None:
    model, rows = MODELS[family](), rows_on_both_sides()
    engine = Engine.of(model)
    assert (engine.path, engine.pruned) == ("packed", True)
    if path != "packed":
        engine = Engine(model, "padded", pruned=False, shares=False)
    if path == "one pass":  # as where the model is sharded: all rows are padded to the longest
        engine = replace(engine, gathered=lambda work: work())
    w, expected = weights(rows), alone(model, rows)
    for order in (range(7), range(6, -1, -1)):
        scored = engine.logprobs([rows[i] for i in order]).logprobs.split([rows[i].n_supervised for i in order])
        back = torch.cat([scored[list(order).index(i)] for i in range(7)])
        assert torch.allclose(back, expected, rtol=1e-5, atol=1e-5)
    own = gradients(model, lambda: -(w * alone(model, rows)).sum())
    assert distance(own, gradients(model, lambda: engine.nll(rows, w)[0])) < 1e-5
    assert "forward" not in vars(model.model.rotary_emb)
    if (family, path) == ("longrope", "packed"):
        checkpointed = Engine.of(model, gradient_checkpointing=True)
        assert distance(own, gradients(model, lambda: checkpointed.nll(rows, w)[0])) < 1e-5


def test_prefixes_are_shared_on_each_side_of_a_border_and_not_across() -> None:
    """Rows of 28 and 29 tokens share 27 and compute 27 + 1; one of 33 shares nothing with them and computes 32."""
    ids = list(range(2, 35))
    rows = [row(ids[:n], lambda t, n=n: t == n - 1) for n in (28, 29, 33)]  # type: ignore[misc]
    assert Engine.of(phi3()).cost(rows).computed_tokens == 28 + 32
    assert Engine.of(phi3(100)).cost(rows).computed_tokens == 32


def test_an_episode_that_passes_a_border_is_read_again_and_does_not_move_its_neighbours() -> None:
    """Its log-probs are those of the row up to each token, by the model itself: short factors up to 125, then long ones."""
    border, n_crossings = 125, 0
    config = Phi3Config(
        vocab_size=len(TOKENIZER),
        **TINY_SIZES,
        original_max_position_embeddings=border,
        sliding_window=None,
        pad_token_id=0,
        rope_parameters=long_rope(border),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = spread(Phi3ForCausalLM(config))
    sampling = Sampling(temperature=1.0, max_new_tokens=24)
    actor = policy(sampling, model=model)
    assert actor._side_by_side
    played = play(actor, "abc", 2)
    for name in "abc":
        assert ids_of(play(policy(sampling, model=model), name, 2)[name]) == ids_of(played[name])
        ids = actor._episodes[name].ids
        with torch.no_grad():
            sides = [model(torch.tensor([ids[:n]])).logits[0].log_softmax(-1) for n in (border, len(ids))]
        end = len(ids)
        for reply in reversed(played[name]):
            assert reply.sampled is not None
            assert reply.sampled.logprobs is not None
            turn = reply.sampled.token_ids
            start = next(i for i in range(end - len(turn), 0, -1) if tuple(ids[i : i + len(turn)]) == turn)
            n_crossings += start <= border < start + len(turn)
            own = [float(sides[t > border][t - 1, ids[t]]) for t in range(start, start + len(turn))]
            assert reply.sampled.logprobs == pytest.approx(own, abs=5e-5)
            end = start
    assert n_crossings == 2  # and the third passes the border between its turns


def test_positions_that_depend_on_a_rows_length_are_found_and_reported() -> None:
    model = phi3()
    assert Rotary.of(model).borders == ((False, BORDER),)
    assert [Rotary.of(model).factors_of(n) for n in (1, 30, 31, 57)] == [0, 0, 31, 31]
    assert [Rotary.of(MODELS["dynamic"]()).factors_of(n) for n in (30, 31, 57)] == [0, 31, 57]
    assert [Rotary.of(model).room(n, 8) for n in (20, 28, 30, 31)] == [8, 3, 1, 8]
    assert not Rotary.of(make(Qwen2Config, Qwen2ForCausalLM)).modules
    assert changing_positions(model, GRPOConfig(), 30) == []
    assert changing_positions(model, SFTConfig(), 40) == []
    (warning,) = changing_positions(model, GRPOConfig(), 40)
    assert "does not start at 1; set max_length to 30 or less" in warning
