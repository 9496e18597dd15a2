"""Datasets, jobs, agents, evaluations and comparisons to fill a store with: what lineage is made of."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.dataset import Dataset
from quintain.records.evaluation import Comparison, Evaluation, LeaderboardRow, PairedComparison, Rate
from quintain.records.jobs.job import EvaluateSpec, Job, JobSpec, JobStatus, RolloutSpec, SelftestSpec, TrainSpec
from quintain.store.store import Store
from trajectory_runs import NOW

_MODELS = tempfile.TemporaryDirectory(prefix="quintain-models-")


def model_folder(name: str) -> str:
    """A folder of a model without weights."""
    folder = Path(_MODELS.name, name)
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(bytes([2, *[0] * 7]) + b"{}")
    (folder / "config.json").write_text("{}")
    return str(folder)


def dataset(dataset_id: str, name: str = "good-runs", **fields: Any) -> Dataset:
    given: dict[str, Any] = {"kind": "sft", "path": f"/data/{dataset_id}", "rows": 1, "splits": {"train": 1}}
    return Dataset(id=dataset_id, name=name, **(given | fields))


def base_agent(store: Store, name: str = "base", **fields: Any) -> Agent:
    model = ModelRef(source="folder", path=model_folder(name))
    return store.agents.add(Agent(name=name, model=model, **fields), NOW)


def queued(job_id: str, spec: JobSpec | None = None, now: datetime = NOW, **fields: Any) -> Job:
    """A job that nobody has started; its request is its own."""
    spec = spec or SelftestSpec()
    given = {"kind": spec.kind, "status": JobStatus.QUEUED, "request_key": job_id, "created_at": now, "updated_at": now}
    return Job(id=job_id, spec=spec, **(given | fields))


def job(
    store: Store,
    job_id: str,
    spec: JobSpec,
    status: JobStatus = JobStatus.SUCCEEDED,
    *,
    now: datetime = NOW,
    **fields: Any,
) -> str:
    """A job that has come to an end, or stands where `status` says."""
    store.jobs.insert(queued(job_id, spec, now, **fields))
    if status is not JobStatus.QUEUED:
        store.jobs.begin_attempt(job_id, 0, 1, now)
    if status not in {JobStatus.QUEUED, JobStatus.RUNNING}:
        store.jobs.finish(job_id, 1, status, now)
    return job_id


def training(
    agent: Agent, dataset_id: str | None = None, environment: str | None = None, name: str = "clerk", **fields: Any
) -> TrainSpec:
    method = "grpo" if environment else "sft"
    source = {"dataset_id": dataset_id, "environment": environment}
    return TrainSpec.model_validate(
        {"agent": agent, "name": name, "method": method, "output_dir": "/o", **source, "config": {}, **fields}
    )


def trained(store: Store, job_id: str, spec: TrainSpec, stage: str = "") -> Agent:
    """The agent that a training job made."""
    job(store, job_id, spec)
    made = Agent(
        name=spec.name,
        model=ModelRef(source="folder", path=model_folder(job_id)),
        parent=spec.agent.id,
        dataset_id=spec.dataset_id,
        job_id=f"{job_id}{stage}",
    )
    return store.agents.add(made, NOW)


def rollout(agent: Agent) -> RolloutSpec:
    return RolloutSpec(agent=agent, environment="e", n_tasks=1)


def evaluation(evaluation_id: str, agent_id: str, **fields: Any) -> Evaluation:
    rate = Rate(successes=1, n=2, value=0.5, ci_low=0.1, ci_high=0.9)
    suite = {"environment": "e", "suite_hash": "h", "split": "held_out", "seed": 1, "sampling": Sampling()}
    return Evaluation(id=evaluation_id, agent_id=agent_id, **({"rate": rate, "results": ()} | suite | fields))


def measured(store: Store, evaluation_id: str, agent: Agent, job_id: str) -> Evaluation:
    """The evaluation of an agent by a job."""
    job(store, job_id, EvaluateSpec(agent=agent, environment="e", n_tasks=1))
    return store.evaluations.add(evaluation(evaluation_id, agent.id or "", job_id=job_id), NOW)


def compared(store: Store, comparison_id: str, a: Evaluation, b: Evaluation) -> Comparison:
    pair = PairedComparison(
        a=a.agent_id, b=b.agent_id, evaluation_a=a.id, evaluation_b=b.id, difference=0.5, ci_low=0.1, ci_high=0.9,
        ci_method="m", p=0.03, p_method="exact McNemar", p_corrected=0.03, significant=True, n_tasks=9, only_a=0, only_b=6,
    )  # fmt: skip
    unknown = {"success_rate": None, "ci_low": None, "ci_high": None, "n": 0, "mean_reward": None}
    row = LeaderboardRow(rank=1, agent=b.agent_id, evaluation_id=b.id, **unknown)
    return store.evaluations.add_comparison(
        Comparison(id=comparison_id, environment="e", suite_hash="h", comparisons=(pair,), leaderboard=(row,)), NOW
    )
