"""Retrievers through the tools: recorded calls to an agent that searches in tools-1k, and every refusal before a job starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from quintain.environments import retrieval
from quintain.environments.registry import task_source
from quintain.errors import Unavailable
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import Job, JobStatus
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.preview import preview_spec
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent, resolve_agent
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.start import start_training
from tools.stored_records import ended, error_of, freeze_runs
from trajectory_runs import TOOLS, call, run, user

TOOLS_1K = "quintain/tools-1k"


def done(services: Services, started: JobStarted) -> Job:
    job = ended(services, started)
    assert job.status is JobStatus.SUCCEEDED, job.error
    return job


@pytest.mark.usefixtures("jobs_in_process")
def test_recorded_calls_train_a_retriever_that_an_environment_searches_with(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Demonstrations of a category, some steps of training, then the expert searches with the result."""
    monkeypatch.setattr(retrieval, "_open", None)
    offered = f"{TOOLS_1K}?mode=direct&k=4&types=music&difficulty=easy"
    played = done(services, collect_rollouts(services, "expert", offered, n_tasks=120))
    runs = TrajectoryFilter(job_id=played.id)
    data = export_dataset(services, kind="sft", name="calls", filter=runs, validation_share=0.2)
    started = start_training(
        services,
        "retriever",
        "starter",
        dataset_id=data.dataset_id,
        name="finder",
        hyperparameters={"trunk": "new", "epochs": 8, "batch_size": 8},
    )
    done(services, started)
    agent = resolve_agent(services, "finder")
    assert (agent.role, agent.parent) == ("retriever", "agent:starter@1")
    assert agent.held_out.n == data.splits["validation"]
    assert "retriever=agent:finder@1" in get_job(services, started.job_id).next_step

    searched = f"{TOOLS_1K}?types=music&difficulty=easy&retriever=finder"
    measured = done(services, evaluate_agent(services, "expert", f"{searched}&mode=retrieved&k=5", n_tasks=10))
    metrics = services.store.evaluations.get(measured.result.evaluation_id).metrics
    assert metrics["recall@5"].value == measured.result.success_rate > 0.3, (
        "the expert succeeds where its tool is found"
    )
    assert {"mrr", "ndcg@10", "recall@1"} <= metrics.keys()
    listed = done(services, evaluate_agent(services, "expert", searched, n_tasks=4))
    assert listed.spec.environment.endswith(f"retriever={agent.model.path}")

    exported = done(services, export_agent(services, "finder", "merged"))
    folder = Path(exported.result.report["path"])
    assert {"modules.json", "1_Pooling/config.json", "sentence_bert_config.json"} <= set(
        exported.result.report["files"]
    )
    assert "SentenceTransformer" in (folder / "README.md").read_text()
    assert register_agent(services, "copy", str(folder)).agent.role == "retriever"


def test_roles_are_refused_where_another_is_needed(waiting: Services) -> None:
    starter = resolve_agent(waiting, "starter")
    finder = starter.model_copy(update={"id": None, "version": None, "name": "finder", "role": "retriever"})
    waiting.store.agents.add(finder, waiting.clock())
    acting = error_of(collect_rollouts, waiting, "finder", "quintain/inventory")
    assert (acting.code, "is a retriever: it finds tools" in acting.message) == ("not_a_policy", True)
    finding = error_of(evaluate_agent, waiting, "expert", f"{TOOLS_1K}?retriever=starter")
    assert (finding.code, "got agent:starter@1, a policy" in finding.message) == ("not_a_retriever", True)
    assert error_of(evaluate_agent, waiting, "expert", f"{TOOLS_1K}?retriever=nobody").code == "not_found"
    assert error_of(export_agent, waiting, "finder", "gguf").code == "wrong_role"
    direct = error_of(evaluate_agent, waiting, "expert", f"{TOOLS_1K}?mode=direct&retriever=finder")
    assert (direct.code, "set mode=retrieved" in direct.message) == ("bad_option", True)
    assert waiting.store.jobs.page().items == ()


def test_data_from_which_no_retriever_can_learn_is_refused_before_a_job(waiting: Services) -> None:
    runs = (run(f"t{i}", user(f"box {i}"), call(), call("fly"), tools=TOOLS) for i in range(3))
    freeze_runs(waiting, *runs, name="one-tool")
    error = error_of(start_training, waiting, "retriever", "starter", dataset_id="one-tool")
    assert error.code == "too_few_tools"
    assert "got 1 in 3 runs (left out: undefined_tool 3; not defined by their runs: fly)" in error.message
    online = error_of(start_training, waiting, "retriever", "starter", environment=TOOLS_1K)
    assert online.code == "not_online"
    assert error_of(preview_spec, waiting, "one-tool", "starter", "retriever", {}, None).code == "no_preview"
    assert waiting.store.jobs.page().items == ()


def test_a_trained_retriever_is_refused_where_no_models_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server describes environments and loads no model; only a search asks for one."""
    monkeypatch.setattr(retrieval, "_open", None)
    source = task_source(f"{TOOLS_1K}?mode=retrieved&retriever=/no/such/folder")
    episode = source.make()
    with pytest.raises(Unavailable, match="play in a job"):
        episode.reset(source.tasks("train", 1, 0)[0])
