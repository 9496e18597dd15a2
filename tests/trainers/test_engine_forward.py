from __future__ import annotations

import random
from collections.abc import Sequence
from copy import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertLMHeadModel,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from quintain.errors import InvalidInput
from quintain.trainers.data.streams import TokenRow
from quintain.trainers.engine import attention, block_attention, forward, fused_attention, machine
from quintain.trainers.engine import head as output
from quintain.trainers.engine.forward import Engine
from quintain.trainers.engine.packing import Segment
from trainers.own_forward import (
    EOS,
    VOCABULARY,
    distance,
    gradients,
    make,
    masked_attention,
    own_logprobs,
    row,
    seen_by_paths,
    weights,
)

FAMILIES: dict[str, tuple[type[Any], type[Any], dict[str, Any]]] = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {}),
    "qwen3 tied": (Qwen3Config, Qwen3ForCausalLM, {"head_dim": 16, "tie_word_embeddings": True}),
    "llama": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 4}),
    "llama tied": (LlamaConfig, LlamaForCausalLM, {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "granite": (GraniteConfig, GraniteForCausalLM, {"residual_multiplier": 0.5, "attention_multiplier": 0.3}),
}


def build(family: str, **changes: Any) -> Any:
    config, model, settings = FAMILIES[family]
    return make(config, model, **{**settings, **changes})


def mixed_rows() -> list[TokenRow]:
    """Branches at several depths, a prefix, equal rows, rows that differ in the first token, and the padding token in rows."""
    draw = random.Random(0)

    def some(n: int) -> list[int]:
        return [EOS if draw.random() < 0.1 else draw.randrange(VOCABULARY) for _ in range(n)]

    prompt, deeper = some(12), some(25)
    return [
        row([*prompt, *deeper, *some(20)]),
        row([*prompt, *some(9)], lambda t: t >= 12),
        row([*prompt, *deeper, *some(6)]),
        row(some(33), lambda t: t == 32),
        row([*prompt, *deeper]),
        row([*prompt, *deeper]),
        row([EOS, *prompt, EOS, EOS], lambda t: True),
        row([2, *prompt, EOS, EOS], lambda t: True),
    ]


def assert_same(model: Any, engine: Engine, rows: Sequence[TokenRow], bound: float = 1e-5) -> None:
    """Log-probs and gradients, both ways of forming them, equal the model's own."""
    w = weights(rows)
    expected = own_logprobs(model, rows)
    assert torch.allclose(engine.logprobs(rows).logprobs, expected, rtol=bound, atol=bound)
    loss, logprobs = engine.nll(rows, w)
    assert torch.allclose(logprobs, expected, rtol=bound, atol=bound)
    assert not logprobs.requires_grad
    assert float(loss.detach()) == pytest.approx(-float((w * expected).sum().detach()), rel=1e-4, abs=1e-4)
    own = gradients(model, lambda: -(w * own_logprobs(model, rows)).sum())
    assert distance(own, gradients(model, lambda: engine.nll(rows, w)[0])) < bound
    assert distance(own, gradients(model, lambda: -(w * engine.logprobs(rows).logprobs).sum())) < bound


# Granite's logits are scaled, its residuals too; the check finds the second. test_training_paths.py has the other families.
@pytest.mark.parametrize(
    ("family", "share", "checkpointed"),
    [
        ("qwen3 tied", True, False),
        ("granite", True, False),
        ("llama tied", False, False),
        ("qwen2", True, True),
    ],
)
def test_packed_rows_give_the_models_own_logprobs_and_gradients(family: str, share: bool, checkpointed: bool) -> None:
    model = build(family)
    engine = Engine.of(model, share_prefixes=share, gradient_checkpointing=checkpointed)
    assert (engine.path, engine.pruned) == ("packed", not checkpointed and family != "granite")
    assert engine.shares is share
    assert model.training
    assert_same(model, engine, mixed_rows())


def test_long_rows_are_cut_into_blocks_and_the_fused_kernel_gives_the_same_however_many_threads_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More key heads than threads, and fewer; and the products that are quicker on some machines."""
    monkeypatch.setattr(block_attention, "_BLOCK", 8)
    before = torch.get_num_threads()
    try:
        for heads, groups, threads, pieces in [(4, 1, 3, 4), (8, 4, 2, 1)]:
            by_products = [False, *([True] if groups == 1 else [])]
            torch.set_num_threads(threads)
            assert fused_attention._pieces(groups, heads // groups) == pieces
            model = build(
                "qwen3 tied", num_attention_heads=heads, num_key_value_heads=groups, head_dim=8, num_hidden_layers=2
            )
            engine = Engine.of(model)
            assert engine.path == "packed"
            for by in by_products:
                monkeypatch.setattr(attention, "_products_are_faster", lambda dtype, width, by=by: by)
                assert_same(model, engine, mixed_rows())
    finally:
        torch.set_num_threads(before)


def test_probabilities_that_are_kept_change_no_bit_of_a_gradient_and_stay_within_their_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(block_attention, "_BLOCK", 4)
    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(2, 2, 14, 3, generator=generator),
        *(torch.randn(2, 14, 3, generator=generator) for _ in "kv"),
    ]
    query, key, value = (x.requires_grad_() for x in inputs)
    segments = (Segment(0, 9), Segment(9, 14, ((0, 5),)))

    def gradients(room: int, window: int | None) -> tuple[int, tuple[torch.Tensor, ...]]:
        saved: list[torch.Tensor] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            scoring = block_attention.Scoring(0.7, window)
            out = block_attention.BlockAttention.apply(query, key, value, None, segments, scoring, room)
        kept = sum(x.nbytes for x in saved) - sum(x.nbytes for x in (query, key, value, out))
        return kept, torch.autograd.grad(out.square().sum(), (query, key, value))

    for window in (None, 3):
        nothing, expected = gradients(0, window)
        everything, own = gradients(2**20, window)
        half, some = gradients(everything // 2, window)
        assert nothing == 0 < half <= everything // 2
        assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(expected, own, some, strict=True))


def test_adapters_train_through_the_engine_and_the_frozen_head_gets_no_gradient() -> None:
    model = get_peft_model(
        build("qwen2"), LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    )
    engine = Engine.of(model)
    assert (engine.path, engine.pruned) == ("packed", True)
    assert_same(model, engine, mixed_rows())
    with model.disable_adapter():
        assert torch.allclose(engine.logprobs(mixed_rows()).logprobs, own_logprobs(model, mixed_rows()), atol=1e-5)
    settings = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    model = get_peft_model(build("llama"), settings)  # an adapter on the head goes through the module
    engine = Engine.of(model, gradient_checkpointing=True)
    assert engine.path == "packed"
    assert_same(model, engine, mixed_rows())


def test_every_tile_of_logits_stays_small_however_many_tokens_are_supervised(monkeypatch: pytest.MonkeyPatch) -> None:
    """1000 hidden states, 50 a tile: twenty tiles, and the same result as from one."""
    hidden = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    source = torch.randint(0, 1000, (1500,), generator=torch.Generator().manual_seed(1))
    target, head = source % 30, nn.Linear(8, 30, bias=False)
    w = torch.linspace(-1, 1, 1500)
    whole = gradients(head, lambda: output.nll(head, hidden, source, target, w)[0])
    expected = head(hidden).log_softmax(-1)[source, target]
    monkeypatch.setattr(output, "_TILE_ROWS", 50)
    monkeypatch.setattr(output, "_TILE_LOGITS", {"cpu": 50 * 30})
    tiles = list(output._tiles(source, target, 1000, 30))
    assert [(t.start, t.end) for t in tiles] == [(i, i + 50) for i in range(0, 1000, 50)]
    assert torch.allclose(output.logprobs(head, hidden, source, target).logprobs, expected, atol=1e-5)
    assert distance(whole, gradients(head, lambda: output.nll(head, hidden, source, target, w)[0])) < 1e-5
    assert (
        distance(whole, gradients(head, lambda: -(w * output.logprobs(head, hidden, source, target)[0]).sum())) < 1e-5
    )


@pytest.mark.parametrize("bias", [False, True])
def test_entropy_is_that_of_the_predicting_distribution(bias: bool) -> None:
    """Logits 0 and 0 over two tokens: log 2; logits 0 and log 3: p = 1/4, 3/4, so 2 log 2 - 3/4 log 3 = 0.5623.

    The probability that two draws agree: 1/2, and 1/16 + 9/16 = 5/8, whose logarithms are -0.6931 and -0.4700.
    """
    head = nn.Linear(1, 2, bias=bias)
    nn.init.zeros_(head.bias) if bias else None
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0], [1.0]]))
    hidden = torch.tensor([[0.0], [1.0986123]])
    scores = output.logprobs(
        head, hidden, torch.tensor([1, 0, 1]), torch.tensor([0, 1, 1]), entropy=True, collision=True
    )
    assert scores.collision is not None
    assert not scores.collision.requires_grad
    assert scores.collision.tolist() == pytest.approx([-0.4700, -0.6931, -0.4700], abs=1e-4)
    assert scores.entropy is not None
    assert not scores.entropy.requires_grad
    assert scores.entropy.tolist() == pytest.approx([0.5623, 0.6931, 0.5623], abs=1e-4)
    assert scores.logprobs.tolist() == pytest.approx([-1.3863, -0.6931, -0.2877], abs=1e-4)


def test_gradients_keep_their_digits_in_float16_where_a_steps_weights_are_tiny() -> None:
    """Weights of 1e-7, as of a token among millions, would vanish in float16 (least 6e-8); here they are scaled."""
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(16, 20, bias=False)
    hidden = torch.randn(6, 16, generator=generator)
    source, target, w = torch.arange(6), torch.arange(6), torch.full((6,), 1e-7)
    exact = gradients(head, lambda: output.nll(head, hidden, source, target, w)[0])["weight"]
    half = nn.Linear(16, 20, bias=False)
    half.load_state_dict(head.state_dict())
    with torch.autocast("cpu", torch.float16):
        loss = output.nll(half, hidden, source, target, w)[0]
    (loss * 2.0**16).backward()
    assert half.weight.grad is not None
    assert float((half.weight.grad / 2**16 - exact).norm() / exact.norm()) < 5e-3


def test_bfloat16_autocast_is_close_and_keeps_the_weights_gradients_in_float32() -> None:
    model, rows = build("qwen3 tied"), mixed_rows()
    w = weights(rows)
    exact, half = Engine.of(model), Engine.of(model, autocast=torch.bfloat16)
    assert (half.path, half.pruned) == ("packed", True)
    scored = half.logprobs(rows, entropy=True)
    assert scored.logprobs.dtype == torch.float32
    difference = (scored.logprobs - exact.logprobs(rows).logprobs).detach().abs()
    assert 1e-5 < float(difference.mean()) < 0.05
    full = gradients(model, lambda: exact.nll(rows, w)[0])
    for loss in (lambda: half.nll(rows, w)[0], lambda: -(w * half.logprobs(rows).logprobs).sum()):
        halved = gradients(model, loss)
        assert {g.dtype for g in halved.values()} == {torch.float32}
        assert distance(full, halved) < 0.1


def test_without_gradients_none_is_formed_and_without_supervised_tokens_it_is_zero() -> None:
    model, rows, unsupervised = build("llama"), mixed_rows(), [row([1, 2, 3], lambda t: False)]
    packed = Engine.of(model)
    with torch.no_grad():
        loss, logprobs = packed.nll(rows, weights(rows))
        scored = packed.logprobs(rows)
    assert not loss.requires_grad
    assert not scored.logprobs.requires_grad
    assert torch.equal(logprobs, scored.logprobs)
    for engine in (packed, Engine(model, "padded", pruned=False, shares=False)):
        loss, logprobs = engine.nll(unsupervised, torch.zeros(0))
        loss.backward()
        assert float(loss.detach()) == 0
        assert len(logprobs) == len(engine.logprobs(unsupervised, entropy=True).logprobs) == 0


def test_the_generic_attention_path_equals_that_of_the_cpu_and_takes_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a dropout of 0.5 two passes in training mode differ; in evaluation mode there is none."""
    dropped, rows = build("qwen2", attention_dropout=0.5), mixed_rows()
    engine = Engine.of(dropped)
    first, second = (engine.logprobs(rows).logprobs.detach() for _ in range(2))
    assert float((first - second).abs().max()) > 1e-3
    dropped.eval()
    assert torch.allclose(engine.logprobs(rows).logprobs, own_logprobs(dropped, rows), atol=1e-5)
    monkeypatch.setattr(forward, "kernels_for", lambda device: ("sdpa",))
    model = build("qwen2")
    engine = Engine.of(model)
    assert (engine.path, engine.pruned) == ("packed", True)
    assert_same(model, engine, rows)


def test_packed_attention_and_its_gradient_are_those_of_a_mask_by_positions_on_each_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Float64, two key heads for four query heads: a trunk, a branch behind a part of it, and a branch of the branch.

    With windows shorter and longer than a block, caps and sinks.
    """
    monkeypatch.setattr(block_attention, "_BLOCK", 2)
    segments = (Segment(0, 6), Segment(6, 8, ((0, 3),)), Segment(8, 12, ((0, 3), (6, 7))))
    generator = torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)

    query, key, value, sinks = some(1, 4, 12, 2), some(1, 2, 12, 2), some(1, 2, 12, 2), some(4)

    for kept in (segments, segments[1:2]):
        for window, cap, sink in [
            (None, None, None),
            (1, None, None),
            (2, 0.5, None),
            (3, None, sinks),
            (5, 0.5, sinks),
        ]:
            inputs = (query, key, value, *([sink] if sink is not None else []))

            def attend(kernel: attention.Kernel, *tensors: torch.Tensor, of: Any = (kept, window, cap)) -> torch.Tensor:
                layout = attention.Layout(of[0], kernel)
                settings = {"sliding_window": of[1], "softcap": of[2], "s_aux": tensors[3] if tensors[3:] else None}
                return attention.packed_attention(None, *tensors[:3], None, packed=layout, scaling=0.7, **settings)[0]

            rows = torch.cat([torch.arange(s.start, s.end) for s in kept])
            seen = torch.from_numpy(seen_by_paths(segments, 12, window))
            expected = masked_attention(query, key, value, seen, cap, sink)[:, rows]
            direction = torch.randn(expected.shape, dtype=torch.float64, generator=generator)
            slopes = torch.autograd.grad(expected, inputs, direction)
            for kernel, by_products in (("cpu", True), ("cpu", False), ("sdpa", False)):
                monkeypatch.setattr(attention, "_products_are_faster", lambda dtype, width, by=by_products: by)
                attended = attend(kernel, *inputs)[:, rows]
                assert torch.allclose(attended, expected, rtol=0, atol=1e-12)
                for own, slope in zip(torch.autograd.grad(attended, inputs, direction), slopes, strict=True):
                    assert torch.allclose(own, slope, rtol=0, atol=1e-12)


class DropsArguments(LlamaForCausalLM):
    """A model whose decoder drops the keyword arguments that it does not know."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        inner = self.model.forward

        def forward(input_ids: Any = None, attention_mask: Any = None, position_ids: Any = None, **_: Any) -> Any:
            return inner(input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False)

        self.model.forward = forward  # type: ignore[method-assign]


class BendsLogits(LlamaForCausalLM):
    """A model whose logits are neither a multiple nor a cap of what its head gives."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        output = super().forward(*args, **kwargs)
        output.logits = output.logits + 0.1 * output.logits.square()
        return output


class HidesItsWindow(MistralForCausalLM):
    """A model whose window is in its mask, but not among the arguments of its attention function."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for layer in self.model.layers:
            layer.self_attn.config = copy(config)
            layer.self_attn.config.sliding_window = None


@pytest.mark.parametrize(
    ("config", "model", "settings", "whole", "reason"),
    [
        (MistralConfig, HidesItsWindow, {"sliding_window": 100}, False, "layer 0 attends to None tokens and caches 7"),
        (LlamaConfig, DropsArguments, {}, False, "does not hand keyword arguments down"),
        (LlamaConfig, BendsLogits, {}, True, "its logits are not head("),
    ],
)
def test_a_model_outside_of_the_fast_path_is_padded_with_the_reason(
    config: type[Any], model: type[Any], settings: dict[str, Any], whole: bool, reason: str
) -> None:
    built = make(config, model, **settings)
    engine = Engine.of(built)
    assert (engine.path, engine.pruned, engine.shares, engine.whole_logits) == ("padded", False, False, whole)
    assert engine.reason is not None
    assert reason in engine.reason
    assert_same(built, engine, mixed_rows())


def test_a_last_block_of_another_shape_is_computed_whole_with_the_reason() -> None:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
    engine = Engine.of(GPT2LMHeadModel(GPT2Config(**sizes)).eval())
    assert (engine.path, engine.pruned) == ("packed", False)
    assert engine.reason == "its last block has another shape than those that can be pruned"


def test_the_engine_leaves_mode_random_stream_and_decoding_alone_even_if_a_pass_fails() -> None:
    model, rows = build("qwen3 tied"), mixed_rows()
    ids = torch.tensor([[5, 6, 7, 8]])

    def decoded() -> list[int]:
        return model.generate(ids, max_new_tokens=8, do_sample=False).tolist()[0]

    expected, implementation = decoded(), model.config._attn_implementation
    model.train()
    model.model.layers[1].eval()
    torch.manual_seed(7)
    before = torch.get_rng_state()
    engine = Engine.of(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert [layer.training for layer in model.model.layers] == [True, False, True]
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(IndexError):
        engine.logprobs([row([1, 2, VOCABULARY + 5, 3, 4, 5, 6])])
    loss = engine.nll(rows, weights(rows))[0]
    assert decoded() == expected
    loss.backward()
    assert model.config._attn_implementation == implementation != attention.NAME
    assert "forward" not in vars(model.model.layers[-1])
    assert not model.model.layers[-1].self_attn.o_proj._forward_pre_hooks


def test_cost_counts_useful_operations_and_what_is_really_computed() -> None:
    """Llama: 32 hidden, 4 query and 4 key heads of width 8, feed-forward 48, 3 layers, 61 tokens.

    A layer's weights: 4 * 32 * 32 + 3 * 32 * 48 = 8704. Two rows of 10 tokens, 2 supervised each, 8 tokens in common:
    6 * 3 * 8704 * 20 + 6 * 32 * 61 * 4 + 6 * 3 * 32 * (10^2 + 10^2) = 3133440 + 46848 + 115200.
    Computed: 9 tokens (no row's last), 8 shared: 10. With the base frozen the first two terms shrink by a third.
    """
    model = build("llama")
    engine = Engine.of(model)
    common = list(range(2, 10))
    rows = [row([*common, a, b], lambda t: t >= 8) for a, b in ((20, 21), (30, 31))]
    assert engine.cost(rows) == (20, 10, 4, 3133440.0 + 46848 + 115200)
    model.requires_grad_(False)
    assert engine.cost(rows).flops == (3133440.0 + 46848) * 2 / 3 + 115200
    padded = Engine(model, "padded", pruned=False, shares=False)
    assert padded.cost([row(common), row(common[:7]), row(common[:3])]).computed_tokens == 8 + 8 + 3


def test_the_cost_is_known_of_models_without_attention_and_with_layers_of_several_widths_and_windows() -> None:
    gemma = Gemma4TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        global_head_dim=16,
        hidden_size_per_layer_input=4,
        vocab_size_per_layer_input=VOCABULARY,
        num_kv_shared_layers=0,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=8,
    )
    mamba = MambaConfig(vocab_size=VOCABULARY, hidden_size=16, state_size=4, num_hidden_layers=1)
    windows = 2 * 8 * ((20**2 - 12**2) - 2 * (10**2 - 2**2)) + 2 * 16 * (20**2 - 2 * 10**2)
    for model, attention_flops in ((MambaForCausalLM(mamba), 0), (Gemma4ForCausalLM(gemma), 6 * windows)):
        engine = Engine.of(model)
        whole, part = engine.cost([row(range(20))]).flops, engine.cost([row(range(10)), row(range(10))]).flops
        assert whole - part == pytest.approx(attention_flops)


def test_a_model_that_reads_ahead_is_refused() -> None:
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    with pytest.raises(InvalidInput, match="got a BertLMHeadModel that reads the tokens it should predict") as refused:
        Engine.of(BertLMHeadModel(BertConfig(**sizes, num_hidden_layers=1)))
    assert refused.value.code == "not_causal"
    assert Engine.of(BertLMHeadModel(BertConfig(**sizes, num_hidden_layers=1, is_decoder=True))).path == "padded"


def test_long_ranges_agree_whichever_back_end_computes_their_products() -> None:
    """1,300 tokens: ranges of 512 keys and more, and of fewer."""
    torch.manual_seed(0)
    inputs = [torch.randn(1, heads, 1300, 16, requires_grad=True) for heads in (4, 2, 2)]
    results = []
    for precision in ("highest", "medium") if machine.medium_is_exact("cpu") else ("highest",):
        with machine.products_of(precision):
            out, _ = attention.packed_attention(
                None, *inputs, None, packed=attention.Layout((Segment(0, 1300),), "cpu")
            )
            results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    query, key, value = inputs
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    plain = [expected.transpose(1, 2), *torch.autograd.grad(expected.square().sum(), inputs)]
    for found in results:
        for ours, theirs in zip(found, plain, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)
