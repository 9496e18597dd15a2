"""Default learning rates: by method, width and adapters, against values worked out by hand."""

from __future__ import annotations

import pytest

from quintain.records.hyperparameters.learning_rates import default_rate
from quintain.records.hyperparameters.methods import CONFIGS


@pytest.mark.parametrize(
    ("method", "hidden", "adapters", "expected"),
    [
        ("sft", 4096, False, 1e-5),
        ("sft", 1024, False, 2e-5),  # 1e-5 * sqrt(4)
        ("sft", 896, True, 2.1e-4),  # 1e-5 * 10 * sqrt(4096 / 896 = 4.571) = 2.138e-4
        ("dpo", 1024, False, 1e-6),
        ("dpo", 2048, True, 7.1e-6),  # 5e-7 * 10 * 1.4142
        ("grpo", 8192, False, 7.1e-7),  # 1e-6 * sqrt(0.5)
        ("grpo", 65536, False, 5e-7),  # sqrt(1/16) = 0.25, bounded at 0.5
        ("reward", 4096, True, 5e-5),
        ("sft", 128, False, 5e-4),  # the starter's
        ("grpo", 512, True, 1e-4),
    ],
)
def test_the_rate_follows_method_width_and_adapters(method: str, hidden: int, adapters: bool, expected: float) -> None:
    rate = default_rate(method, hidden, adapters=adapters)
    assert rate.value == pytest.approx(expected)
    assert f"hidden size {hidden}" in rate.rule


def test_every_method_has_a_rate_and_wider_models_never_take_larger_steps() -> None:
    for method in CONFIGS:
        rates = [default_rate(method, hidden, adapters=False).value for hidden in (513, 640, 896, 2048, 4096, 8192)]
        assert rates == sorted(rates, reverse=True)
        assert default_rate(method, 513, adapters=False).value < default_rate(method, 512, adapters=False).value
