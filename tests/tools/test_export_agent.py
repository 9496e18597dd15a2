"""`export_agent` before its job: what is refused, where files may go, what the store tells; and the card that is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fake_endpoint import profile, write_profiles
from quintain.errors import Conflict, Refused
from quintain.exporters.agent_card import model_card, modelfile
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.handover import AgentExport, Ancestor, ExportAgentSpec, Parity, Provenance
from quintain.records.jobs.job import JobStatus
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.jobs.jobs import resume_job
from quintain.tools.roots import writable
from quintain.tools.services import Services
from quintain.tools.training.export_agent import _provenance, export_agent
from store_shelves import base_agent, job, measured, trained, training
from tools.stored_records import add_runs, error_of
from trajectory_runs import run

TRUSTED = False


def handed(agent: Agent, provenance: Provenance, **fields: Any) -> AgentExport:
    parity = Parity(
        compared_in="float32",
        stored_in="bfloat16",
        bound=0.15,
        max_difference=0.0123,
        mean_difference=0.001,
        tokens=100,
        greedy_tokens=16,
        equal_ids=5,
        equal_renderings=2,
    )
    given: dict[str, Any] = {
        "quintain": "0.1.0",
        "format": "merged",
        "job_id": "job-x",
        "base": {"source": "hub", "name": "Qwen/Qwen2.5-0.5B", "revision": "abc"},
        "template": {"style": "react", "end_tokens": ["<|im_end|>"]},
        "versions": {},
        "files": {},
        "bytes": 0,
    }
    return AgentExport(agent=agent, provenance=provenance, parity=parity, **(given | fields))


def test_what_cannot_be_handed_over_is_refused_before_a_job_is_made(services: Services, settings: Settings) -> None:
    write_profiles(settings, profile("far"))
    base_agent(services.store, "plain")
    taken = settings.exports_dir / "plain-1-merged"
    taken.mkdir(parents=True)
    (taken / "mine.txt").write_text("mine")
    (settings.inbox_dir / "file").write_text("")
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("endpoint:far", {}, "no_weights"),
        ("plain", {"format": "adapter"}, "no_adapter"),
        ("plane", {}, "not_found"),
        ("plain", {}, "exists"),
        ("plain", {"path": str(settings.inbox_dir / "file")}, "exists"),
        ("plain", {"path": "../jobs/x"}, "outside_roots"),
        ("plain", {"path": "."}, "outside_roots"),
        ("plain", {"path": "x" * 250}, "invalid_input"),
        ("plain", {"path": "a\0b"}, "not_found"),
    ]
    for agent, arguments, code in cases:
        error = error_of(export_agent, services, agent, **{"format": "merged", **arguments})
        assert error.code == code, error
    assert services.store.jobs.page(limit=5).items == ()


def test_files_go_where_the_operator_lets_them_and_a_trusted_caller_says(services: Services, tmp_path: Path) -> None:
    settings = services.settings
    assert writable(services, "a/b") == settings.exports_dir.resolve() / "a" / "b"
    assert writable(services, settings.inbox_dir / "x") == settings.inbox_dir.resolve() / "x"
    (settings.inbox_dir / "link").symlink_to(settings.home / "agents")
    for outside in (tmp_path / "x", settings.agents_dir / "x", settings.inbox_dir / "link" / "x", settings.inbox_dir):
        with pytest.raises(Refused, match="QUINTAIN_ROOTS"):
            writable(services, outside)
    wider = replace(services, settings=settings.model_copy(update={"roots": (tmp_path,)}))
    assert writable(wider, tmp_path / "x") == tmp_path / "x"
    assert writable(replace(services, trusted=True), "/srv/x") == Path("/srv/x")


def test_an_agent_that_learned_from_a_forgotten_run_is_not_handed_over(services: Services) -> None:
    store = services.store
    gone, _ = add_runs(services, run("t1", tags=("mine",)), run("t2", tags=("mine",)))
    dataset = export_dataset(services, "sft", "good", filter=TrajectoryFilter(tags=("mine",)))
    agent = trained(store, "job-train", training(base_agent(store), dataset.dataset_id))
    spec = ExportAgentSpec(
        agent=agent,
        format="merged",
        destination=str(services.settings.exports_dir / "out"),
        provenance=_provenance(services, agent),
    )
    waiting = job(store, "job-waiting", spec, JobStatus.QUEUED)
    stopped = job(store, "job-stopped", spec, JobStatus.FAILED)
    done = job(store, "job-done", spec)
    Path(spec.destination).mkdir(parents=True)
    report = forget(services, gone, dry_run=False)
    result = {thing.id: (thing.state, thing.remedy) for thing in report.touched}
    assert result[waiting][0] == "cancelled"
    assert result[done][1].startswith(f"It handed over an agent that learned from them: delete {spec.destination}")
    for refused in (lambda: export_agent(services, "clerk", "merged"), lambda: resume_job(services, stopped)):
        with pytest.raises(Conflict, match=r"\[forgotten\].*learned from a run that was forgotten since"):
            refused()


def test_the_card_tells_what_the_store_knows_and_nothing_else(services: Services) -> None:
    store = services.store
    add_runs(services, run("t1", tags=("mine",)), run("t2", tags=("mine",)))
    dataset = export_dataset(services, "sft", "good", filter=TrajectoryFilter(tags=("mine",)))
    agent = trained(store, "job-train", training(base_agent(store), dataset.dataset_id))
    measured(store, "eval-1", agent, "job-eval")
    known = _provenance(services, agent)
    assert known.ancestors == (
        Ancestor(agent="agent:clerk@1", methods=("sft",), dataset_id=dataset.dataset_id, job_id="job-train"),
        Ancestor(agent="agent:base@1"),
    )
    assert [(one.name, one.rows) for one in known.datasets] == [("good", 2)]
    assert known.trajectories == 2
    card = model_card(handed(agent, known))
    header, text = card.split("---\n", 2)[1:]
    result = yaml.safe_load(header)
    assert (result["base_model"], result["base_model_relation"]) == ("Qwen/Qwen2.5-0.5B", "finetune")
    assert (result["tags"], result["datasets"]) == (["quintain", "agent", "sft"], ["good"])
    assert result["model-index"][0]["results"][0]["metrics"][0]["value"] == 0.5
    assert "| eval-1 | e | held_out | 2 | 0.500 (0.100 to 0.900) |  |  |" in text
    assert "differ by at most 0.0123 nats" in text
    on_top = model_card(handed(agent, known, format="adapter"))
    assert 'AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B", revision="abc")' in on_top
    assert "vllm serve Qwen/Qwen2.5-0.5B --revision abc --enable-lora" in on_top
    assert "It learned" not in model_card(handed(agent, Provenance(ancestors=(Ancestor(agent="agent:clerk@1"),))))
    assert "It has not been evaluated." in model_card(handed(agent, Provenance(ancestors=known.ancestors)))


def test_a_modelfile_samples_as_the_agent_and_stands_only_where_ollama_reads_the_weights() -> None:
    agent = Agent(
        id="agent:Clerk@2",
        name="Clerk",
        version=2,
        model=ModelRef(source="hub", path="Qwen/Qwen2.5-0.5B"),
        sampling=Sampling(temperature=0.5, top_p=0.9, top_k=40, min_p=0.05, max_new_tokens=64),
        system_prompt="You sell fruit.",
    )
    only = Provenance(ancestors=(Ancestor(agent="agent:Clerk@2"),))
    assert modelfile(handed(agent, only), "Qwen2ForCausalLM") == (
        "# agent:Clerk@2, written by Quintain 0.1.0: ollama create clerk -f Modelfile\n"
        "FROM .\n"
        "PARAMETER temperature 0.5\n"
        "PARAMETER top_p 0.9\n"
        "PARAMETER top_k 40\n"
        "PARAMETER min_p 0.05\n"
        "PARAMETER repeat_penalty 1.0\n"
        "PARAMETER num_predict 64\n"
        'PARAMETER stop "<|im_end|>"\n'
        'SYSTEM """You sell fruit."""\n'
    )
    quoting = agent.model_copy(update={"system_prompt": 'Say """hi""".'})
    assert "SYSTEM" not in (modelfile(handed(quoting, only), "LlamaForCausalLM") or "SYSTEM")
    assert modelfile(handed(agent, only), "Mamba2ForCausalLM") is None
    assert modelfile(handed(agent, only, format="adapter"), "LlamaForCausalLM") is None
    scoring = agent.model_copy(update={"role": "reward_model"})
    assert modelfile(handed(scoring, only), "LlamaForCausalLM") is None
    assert "It values runs and does not act" in model_card(handed(scoring, only))
