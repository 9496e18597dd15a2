"""Warnings of a training that starts although a plan of it would have blockers."""

from __future__ import annotations

from quintain.errors import QuintainError
from quintain.next_step import Hint
from quintain.records.job import TrainSpec
from quintain.records.plan import Blocker
from quintain.tools.services import Services
from quintain.tools.training.planning.concerns import data_concerns
from quintain.tools.training.planning.data import DataFacts, look_at_data
from quintain.tools.training.planning.device import look_at_device
from quintain.tools.training.planning.earlier_jobs import measured
from quintain.tools.training.planning.estimate import Asked, shortages, size_estimate, slow_format
from quintain.tools.training.planning.model_files import read_model


def start_warnings(services: Services, spec: TrainSpec) -> tuple[Hint, ...]:
    """Return the blockers that `plan_training` would list for a training that can be started all the same."""
    blockers = list[Blocker]()
    if spec.dataset_id is not None:
        blockers += data_concerns(services, spec.method, services.store.datasets.get(spec.dataset_id)).blockers
    asked = _asked(services, spec)
    blockers += [*shortages(size_estimate(services, asked)), *slow_format(spec.config, asked.device)]
    return tuple(Hint(f"[{one.code}] {one.message}; ", one.remedy) for one in blockers)


def _asked(services: Services, spec: TrainSpec) -> Asked:
    device, config, data = look_at_device(), spec.config, None
    if spec.dataset_id is not None:
        data = _data(services, spec, spec.dataset_id)
    earlier = measured(services, spec.agent.model, config, device)
    model = read_model(spec.agent.model)
    return Asked(spec.method, config, spec.agent, spec.environment, spec.dataset_id, data, model, device, earlier)


def _data(services: Services, spec: TrainSpec, dataset_id: str) -> DataFacts | None:
    """Return the facts of the dataset; None where its rows cannot be read, which the job reports."""
    dataset, reference = services.store.datasets.get(dataset_id), spec.agent.id or spec.agent.name
    try:
        settings = spec.config.model_dump(mode="json", exclude_defaults=True)
        return look_at_data(services, dataset, reference, spec.method, settings, spec.config.batch_size)
    except QuintainError:
        return None
