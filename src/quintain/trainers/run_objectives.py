"""The objective of a run with its mismatched runs, and the reference that moves with it."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.records.hyperparameters import DPOConfig, KTOConfig, RetrieverConfig, TrainingConfig
from quintain.trainers.data.mismatched import mismatched
from quintain.trainers.data.retrieval_examples import relevant_tools
from quintain.trainers.data.streams import Example
from quintain.trainers.loop.objectives import Objective, objective_of
from quintain.trainers.loop.synced_reference import SyncedReference
from quintain.trainers.reference_log_probs import References


def run_objective(
    config: TrainingConfig,
    training: Sequence[Example],
    held_out: Sequence[Example],
    references: References,
    max_length: int,
) -> Objective:
    """Return the objective of a run, with KTO's mismatched runs scored by the reference."""
    unpaired: dict[str, Example] = {}
    if isinstance(config, KTOConfig):
        for examples in (training, held_out):
            found = mismatched(examples, max_length)
            unpaired |= dict(zip(found, references.with_logprobs(list(found.values())), strict=True))
    relevant = relevant_tools([*training, *held_out]) if isinstance(config, RetrieverConfig) else {}
    objective = objective_of(config, unpaired, relevant)
    objective.needs_reference |= config.kl_stop is not None
    return objective


def synced_reference(config: TrainingConfig, references: References) -> SyncedReference | None:
    """Return the reference that follows the policy, if the settings ask for one."""
    if not isinstance(config, DPOConfig) or config.reference_sync_steps is None:
        return None
    return SyncedReference(references, config.reference_sync_steps, config.reference_mixup)
