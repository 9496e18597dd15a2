"""The reward of a training: which methods take one, and its spec."""

from __future__ import annotations

from quintain.errors import InvalidInput
from quintain.records.hyperparameters import ONLINE_METHODS
from quintain.records.reward import RewardSpec
from quintain.tools.labels.rewards import reward_spec
from quintain.tools.services import Services

REWARDED = frozenset({"grpo", "ranking", "dpo", "orpo", "simpo", "bc"})
"""Methods that learn from the rewards or the order of a dataset's runs."""


def training_reward(services: Services, method: str, reward: object, *, acts: bool) -> RewardSpec | None:
    """Return the reward of a training; None where none is named.

    Raises:
        InvalidInput: The method does not learn from rewards, or as `reward_spec`.
        NotFound: As `reward_spec`.
    """
    if reward is None:
        return None
    if not acts and method not in REWARDED:
        raise InvalidInput(
            f"{method} does not learn from rewards, so `reward` would have no effect; leave it out, or use one of "
            f"{', '.join(sorted(REWARDED))} on a dataset, or {', '.join(sorted(ONLINE_METHODS))} or evolve in an environment",
            code="no_reward",
        )
    return reward_spec(services, reward)
