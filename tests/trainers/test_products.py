from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from quintain.trainers.acting import products
from quintain.trainers.acting.products import ProductForms, to_bf16
from tiny_models import tiny_model
from trainers.playing import TOKENIZER, play, policy, spread


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(1, 1, 48), (2, 1, 48), (4, 1, 48), (1, 3, 48), (3, 48), (48,), (5, 1, 48), (0, 1, 48), (70, 48)]
)
def test_every_form_gives_what_the_layer_gives(
    shape: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = nn.Linear(48, 96, bias=bias)
    x = torch.randn(shape)
    results = []
    with torch.no_grad():
        monkeypatch.setattr(products, "_SMALL_MODEL", 0)
        for form in ("linear", "fast linear", "transposed", "fast transposed"):
            monkeypatch.setattr(products, "_fastest", lambda x, weight, form=form: form)
            with ProductForms().applied(layer):
                results.append(layer(x))
    for result in results:
        assert result.shape == (*shape[:-1], 96)
        assert result.is_contiguous()
        torch.testing.assert_close(result, layer(x), rtol=1e-5, atol=1e-5)


class _Products(TorchDispatchMode):
    """Collects the matrix products that torch carries out."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm):
            self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("rows", [2, 8, 70])
@pytest.mark.parametrize("form", ["linear", "fast linear", "transposed"])
def test_the_last_columns_of_a_batch_are_one_product_that_does_not_copy_the_weight(
    rows: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a frozen layer, as under an adapter, 32 rows of a head of 262,144 x 640 took 21 GB."""
    monkeypatch.setattr(products, "_SMALL_MODEL", 0)
    monkeypatch.setattr(products, "_fastest", lambda x, weight: form)
    layer, states = nn.Linear(48, 96, bias=False).requires_grad_(False), torch.randn(rows, 5, 48)
    with torch.no_grad(), ProductForms().applied(layer), _Products() as carried_out:
        result = layer(states[:, -1:])
    assert carried_out.names == ["mm"]
    torch.testing.assert_close(result, states[:, -1:] @ layer.weight.t(), rtol=1e-5, atol=1e-5)


def test_choices_are_kept_with_a_job_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run rounds as before, whatever would be fastest now; the probe itself chooses among all forms that are exact."""
    monkeypatch.setattr(products, "_SMALL_MODEL", 0)
    layer, kept = nn.Linear(48, 96), tmp_path / "products.json"
    precision = torch.get_float32_matmul_precision()
    with torch.no_grad(), ProductForms(kept).applied(layer):
        for rows in (1, 3, 4, 5, 64, 65):
            layer(torch.randn(rows, 48))
    assert torch.get_float32_matmul_precision() == precision
    chosen = json.loads(kept.read_bytes())
    assert set(chosen) == {"precision", *(f"{rows} x 48 x 96 torch.float32" for rows in (1, 4, 8, 64))}

    def again(*arguments: object) -> str:
        raise AssertionError("a kept choice was made again")

    monkeypatch.setattr(products, "_fastest", again)
    monkeypatch.setattr(products, "_precision", again)
    with torch.no_grad(), ProductForms(kept).applied(layer):
        layer(torch.randn(2, 48)[:1])
    assert json.loads(kept.read_bytes()) == chosen


def test_a_kept_choice_of_another_processor_does_not_round_where_its_back_end_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that moves to a processor with AMX must not compute float32 products in bfloat16."""
    used = []

    def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        used.append(torch.get_float32_matmul_precision())
        return x @ weight.t()

    (tmp_path / "kept").write_text(json.dumps({"precision": "medium", "1 x 48 x 96 torch.float32": "fast transposed"}))
    monkeypatch.setattr(products, "_SMALL_MODEL", 0)
    monkeypatch.setitem(products._FORMS, "fast transposed", (linear, "medium"))
    for is_exact in (True, False):
        monkeypatch.setattr(products, "medium_is_exact", lambda device, is_exact=is_exact: is_exact)
        with torch.no_grad(), ProductForms(tmp_path / "kept").applied(layer := nn.Linear(48, 96)):
            used.append(torch.get_float32_matmul_precision())
            layer(torch.randn(1, 48))
    assert used == ["medium", "medium", "highest", "highest"]


def test_layers_are_left_as_they_were_and_those_of_others_or_of_small_models_are_not_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(8, 8), Own(8, 8), nn.Linear(8, 8).to(torch.float64), nn.Linear(8, 8))
    model[3].forward = own = lambda x: x
    with ProductForms().applied(model):
        assert ["forward" in vars(layer) for layer in model[:3]] == [False] * 3
    monkeypatch.setattr(products, "_SMALL_MODEL", 0)
    with ProductForms().applied(model):
        assert ["forward" in vars(layer) for layer in model] == [True, False, False, True]
        assert model[3].forward is own
    assert ["forward" in vars(layer) for layer in model[:3]] == [False] * 3
    with pytest.raises(ZeroDivisionError), ProductForms().applied(model):
        raise ZeroDivisionError
    assert "forward" not in vars(model[0])


def test_weights_are_bf16_where_a_probe_or_the_agent_says_so_and_the_choice_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, kept = spread(tiny_model(TOKENIZER)), tmp_path / "products.json"
    assert [ProductForms(kept).precision(model, asked) for asked in ("auto", "fp32", "bf16")] == [
        "fp32",
        "fp32",
        "bf16",
    ]
    assert not kept.exists(), "a small model is not probed"
    monkeypatch.setattr(products, "_SMALL_MODEL", 0)
    assert ProductForms(kept).precision(model, "auto") in {"fp32", "bf16"}
    kept.write_text('{"weights": "bf16"}')
    assert ProductForms(kept).precision(model, "auto") == "bf16"
    positions = model.model.rotary_emb.inv_freq.clone()
    own = play(policy(model=model), "ab", 1)
    to_bf16(model)
    assert torch.equal(model.model.rotary_emb.inv_freq, positions)
    assert ProductForms(kept).precision(model, "fp32") == "as loaded"
    actor = policy(model=model)
    assert actor.precision == "bf16"
    for name, replies in play(actor, "ab", 1).items():
        ours, exact = replies[0].sampled, own[name][0].sampled
        assert ours is not None
        assert exact is not None
        assert ours.logprobs is not None
        assert exact.logprobs is not None
        assert ours.logprobs[0] == pytest.approx(exact.logprobs[0], abs=0.2)
