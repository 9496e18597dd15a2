from __future__ import annotations

import pytest
import torch
from torch import nn

from quintain.trainers.acting.small_batch_linear import small_batch_linear


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "shape", [(1, 1, 48), (2, 1, 48), (4, 1, 48), (1, 3, 48), (3, 48), (48,), (5, 1, 48), (0, 1, 48)]
)
def test_few_rows_give_what_the_layer_gives(shape: tuple[int, ...], bias: bool) -> None:
    layer = nn.Linear(48, 96, bias=bias)
    x = torch.randn(shape)
    with torch.no_grad(), small_batch_linear(layer):
        made = layer(x)
    assert made.shape == (*shape[:-1], 96)
    assert made.is_contiguous()
    torch.testing.assert_close(made, layer(x), rtol=1e-5, atol=1e-5)


def test_layers_are_left_as_they_were_and_those_of_others_are_not_touched() -> None:
    class Own(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(8, 8), Own(8, 8), nn.Linear(8, 8).to(torch.bfloat16), nn.Linear(8, 8))
    model[3].forward = own = lambda x: x
    with small_batch_linear(model):
        assert ["forward" in vars(layer) for layer in model] == [True, False, False, True]
        assert model[3].forward is own
    assert ["forward" in vars(layer) for layer in model[:3]] == [False] * 3
    with pytest.raises(ZeroDivisionError), small_batch_linear(model):
        raise ZeroDivisionError
    assert "forward" not in vars(model[0])
