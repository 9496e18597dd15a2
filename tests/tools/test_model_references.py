"""What people have is a model, and what is handed over: adapters with their base, exports, names of the inbox, GGUF files, jobs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fake_endpoint import profile, write_profiles
from gguf_files import whole
from quintain.errors import Conflict, InvalidInput, NotFound, QuintainError, Refused
from quintain.exporters.agent_card import model_card, modelfile
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.records.jobs.handover import AgentExport, Ancestor, ExportAgentSpec, Parity, Provenance
from quintain.records.jobs.job import JobStatus
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.forgetting import forget
from quintain.tools.evaluation.rollouts import evaluate_agent
from quintain.tools.jobs.jobs import resume_job
from quintain.tools.roots import writable
from quintain.tools.services import Services, open_services
from quintain.tools.training.agents import register_agent, resolve_agent
from quintain.tools.training.export_agent import _provenance, export_agent
from quintain.tools.training.model_folders import starter_folder
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training
from store_shelves import base_agent, job, measured, trained, training
from tools.stored_records import add_runs, error_of, freeze_runs
from trajectory_runs import answer, run, user


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
    assert "; MLX: `mlx_lm.server --model this-folder`; llama.cpp: `convert_hf_to_gguf.py this-folder`." in text
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


TRUSTED = False


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(cache), raising=False)
    return cache


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return folder


def adapter(folder: Path, base: object, *, weights: str = "adapter_model.safetensors") -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": base}))
    (folder / weights).touch()
    return folder


def test_an_adapter_in_the_inbox_stands_on_its_base(services: Services, inbox: Path) -> None:
    base = model(inbox / "gemma")
    bases = {
        "absolute": str(base),
        "name": "gemma",
        "other-machine": "/home/alice/models/gemma",
        "windows": r"C:\models\gemma",
        "hub": "google/gemma",
    }
    for name, written in bases.items():
        folder = adapter(inbox / name, written)
        agent = resolve_agent(services, name)
        assert agent.model == ModelRef(source="folder", path=str(base), adapter=str(folder))
        assert agent.id == resolve_agent(services, str(folder)).id == f"agent:{name}@1"
    beside = model(inbox / "project" / "models" / "tiny")
    for name, written in {"above": "models/tiny", "dotted": "../../models/tiny"}.items():
        adapter(inbox / "project" / "out" / name, written)
        assert resolve_agent(services, f"project/out/{name}").model.path == str(beside)
    pickled = adapter(inbox / "pickled", "gemma", weights="adapter_model.bin")
    assert resolve_agent(services, "pickled").model.adapter == str(pickled)


def test_an_adapter_on_the_embedded_model_finds_it_in_any_installation(services: Services, inbox: Path) -> None:
    adapter(inbox / "a", "/opt/venv/lib/python3.11/site-packages/quintain/starter")
    found = resolve_agent(services, "a").model
    assert found == ModelRef(source="starter", path=str(starter_folder()), adapter=str(inbox / "a"))


def test_an_adapter_on_a_gguf_file_stands_on_the_file(services: Services, inbox: Path) -> None:
    (inbox / "small.gguf").write_bytes(whole())
    adapter(inbox / "a", str(inbox / "small.gguf"))
    assert resolve_agent(services, "a").model == ModelRef(
        source="gguf", path=str(inbox / "small.gguf"), adapter=str(inbox / "a")
    )


def test_a_base_in_the_hub_cache_is_used_without_the_hub(
    services: Services, inbox: Path, empty_hub_cache: Path
) -> None:
    adapter(inbox / "a", "google/gemma")
    error = error_of(resolve_agent, services, "a")
    assert error.code == "base_not_found"
    for part in ("'google/gemma'", "inbox", "as 'gemma'", "Hub cache", "QUINTAIN_ALLOW_HUB=1"):
        assert part in error.message
    repository = empty_hub_cache / "models--google--gemma"
    snapshot = model(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text("abc")
    found = resolve_agent(services, "a").model
    assert (found.source, Path(found.path).resolve()) == ("folder", snapshot.resolve())


def test_an_adapter_without_the_name_of_its_base_says_where_to_write_it(services: Services, inbox: Path) -> None:
    for place, base in enumerate((None, "", 3, "x" * 2000, "a\0b")):
        adapter(inbox / f"a{place}", base)
        error = error_of(resolve_agent, services, f"a{place}")
        assert error.code == "model_incomplete"
        assert "base_model_name_or_path" in error.message


def test_an_adapter_without_weights_or_with_a_damaged_configuration_is_explained(
    services: Services, inbox: Path
) -> None:
    (adapter(inbox / "empty", "gemma") / "adapter_model.safetensors").unlink()
    assert "adapter_model.safetensors or adapter_model.bin" in error_of(resolve_agent, services, "empty").message
    prompts = {"peft_type": "PROMPT_TUNING", "base_model_name_or_path": "gemma"}
    (adapter(inbox / "prompts", "gemma") / "adapter_config.json").write_text(json.dumps(prompts))
    biased = {"lora_bias": True, "base_model_name_or_path": "gemma"}
    (adapter(inbox / "biased", "gemma") / "adapter_config.json").write_text(json.dumps(biased))
    for unfit in ("prompts", "biased"):
        assert error_of(resolve_agent, services, unfit).code == "adapter_unsupported"
    (adapter(inbox / "damaged", "gemma") / "adapter_config.json").write_text("[" * 10_000)
    assert error_of(resolve_agent, services, "damaged").code == "model_damaged"


def test_a_client_cannot_reach_a_base_outside_of_its_roots(settings: Settings, inbox: Path, tmp_path: Path) -> None:
    secret = model(tmp_path / "elsewhere" / "secret")
    adapter(inbox / "a", str(secret))
    client = open_services(settings)
    assert error_of(resolve_agent, client, "a").code == "base_not_found"
    client.close()
    user = open_services(settings, trusted=True)
    assert resolve_agent(user, "a").model.path == str(secret)
    user.close()


@pytest.mark.parametrize("trusted", [True, False])
def test_a_folder_of_the_inbox_is_named_without_a_path(settings: Settings, inbox: Path, trusted: bool) -> None:
    services = open_services(settings, trusted=trusted)
    model(inbox / "gemma270")
    for reference in ("gemma270", str(inbox / "gemma270")):
        assert resolve_agent(services, reference).model == ModelRef(source="folder", path=str(inbox / "gemma270"))
    register_agent(services, "helper", "gemma270")
    assert resolve_agent(services, "helper").model.path == str(inbox / "gemma270")
    exported = model(settings.exports_dir / "merged")
    for reference in ("merged", "exports/merged", "inbox/gemma270"):
        folder = exported if "merged" in reference else inbox / "gemma270"
        assert resolve_agent(services, reference).model == ModelRef(source="folder", path=str(folder))
    if not trusted:
        model(settings.home / "cache" / "kept")
        assert error_of(resolve_agent, services, "cache/kept").code == "outside_roots"
    services.close()


def test_an_unknown_name_lists_the_nearest_models_of_the_inbox_without_its_path(
    services: Services, inbox: Path
) -> None:
    message = error_of(resolve_agent, services, "gemma720").message
    assert "the inbox (the folder `inbox` in Quintain's home folder)" in message
    assert "has none yet" in message
    for name in ("qwen", "gemma270", "google/gemma-3"):
        model(inbox / name)
    (inbox / "small.gguf").write_bytes(whole())
    (inbox / "notes").mkdir()
    error = error_of(resolve_agent, services, "gemma720")
    assert (error.code, type(error)) == ("not_found", NotFound)
    assert "are: gemma270, google/gemma-3, " in error.message
    assert "small.gguf" in error.message
    assert "notes" not in error.message
    assert str(services.settings.home) not in error.message
    assert "are: google/gemma-3, gemma270, " in error_of(resolve_agent, services, "google/gema-3").message


@pytest.mark.parametrize("address", ["http://localhost:8000/v1", "https://models.example/v1"])
def test_the_address_of_a_model_server_leads_to_a_profile(services: Services, address: str) -> None:
    with pytest.raises(QuintainError, match=r"is `endpoint:NAME`, with the address as base_url of \[NAME\] in .*toml"):
        register_agent(services, "teacher", address)


def test_a_folder_of_models_lists_those_in_it(services: Services, inbox: Path) -> None:
    model(inbox / "output" / "checkpoint-20")
    adapter(inbox / "output" / "checkpoint-40", "gemma")
    error = error_of(resolve_agent, services, "output")
    assert error.code == "model_not_found"
    assert "models in it: checkpoint-20, checkpoint-40" in error.message


def test_a_gguf_file_is_named_by_itself_or_by_its_folder(services: Services, inbox: Path) -> None:
    folder = inbox / "gemma-GGUF"
    folder.mkdir()
    (folder / "gemma-Q4_K_M.gguf").write_bytes(whole())
    (folder / "config.json").write_text("{}")
    for reference in ("gemma-GGUF", "gemma-GGUF/gemma-Q4_K_M.gguf"):
        found = resolve_agent(services, reference).model
        assert found == ModelRef(source="gguf", path=str(folder / "gemma-Q4_K_M.gguf"))
    (folder / "gemma-Q8_0.gguf").touch()
    error = error_of(resolve_agent, services, str(folder))
    assert (error.code, type(error)) == ("model_ambiguous", InvalidInput)
    assert "gemma-Q4_K_M.gguf, gemma-Q8_0.gguf" in error.message


def test_an_export_keeps_the_settings_of_its_agent_and_its_origin(services: Services, inbox: Path) -> None:
    trained = services.store.agents.add(
        Agent(
            name="picker",
            model=ModelRef(source="starter", path=str(starter_folder())),
            system_prompt="Be brief.",
            sampling=Sampling(temperature=0.5),
            template="react",
        ),
        services.clock(),
    )
    folder = model(inbox / "picker-1-merged")
    (folder / "agent.json").write_text(handed(trained, Provenance(ancestors=())).model_dump_json())
    again = resolve_agent(services, "picker-1-merged")
    assert (again.id, again.parent) == ("agent:picker-1-merged@1", trained.id), (
        "the bare name stays the trained agent's"
    )
    assert resolve_agent(services, "picker") == trained
    assert (again.system_prompt, again.sampling, again.template) == ("Be brief.", trained.sampling, "react")
    assert again.model == ModelRef(source="folder", path=str(folder))
    assert resolve_agent(services, str(folder)) == again
    there = trained.model_copy(update={"name": "elsewhere", "id": "agent:elsewhere@1"})
    (folder / "agent.json").write_text(handed(there, Provenance(ancestors=())).model_dump_json())
    assert [resolve_agent(services, str(folder)).id for _ in range(2)] == ["agent:elsewhere@1"] * 2, (
        "its name is free here"
    )
    (folder / "agent.json").write_text("{}")  # of another program
    assert resolve_agent(services, str(folder)).name == "picker-1-merged"


def test_the_folder_of_an_agent_trained_here_is_that_agent_and_a_copy_its_child(
    services: Services, settings: Settings
) -> None:
    folder = adapter(settings.agents_dir / "picker-0123456789", str(starter_folder()))
    starter = ModelRef(source="starter", path=str(starter_folder()))
    agents = services.store.agents
    (folder / "adapter_model.safetensors").write_text("its weights")
    trained = agents.add(
        Agent(
            name="picker",
            model=starter.model_copy(update={"adapter": str(folder)}),
            system_prompt="Be brief.",
            job_id="job-1",
        ),
        services.clock(),
    )
    agents.add(Agent(name="picker", model=starter), services.clock())
    assert resolve_agent(services, str(folder)).id == trained.id
    copied = shutil.copytree(folder, settings.inbox_dir / "copied")
    again = resolve_agent(services, str(copied))
    assert again.model == starter.model_copy(update={"adapter": str(copied)})
    assert (again.name, again.parent, again.system_prompt) == ("copied", trained.id, "Be brief.")
    other = adapter(settings.inbox_dir / "other", "quintain/starter")
    (other / "adapter_model.safetensors").write_text("its weight2")
    assert resolve_agent(services, str(other)).parent is None
    model(settings.inbox_dir / "both")
    for path in folder.iterdir():
        shutil.copy(path, settings.inbox_dir / "both")
    error = error_of(resolve_agent, services, "both")
    assert (error.code, "an adapter and a whole model" in error.message) == ("model_ambiguous", True)


def checkpoint(folder: Path, step: int, *, name: str = "", lora: bool = True, format: int = 3) -> Path:
    """The files of a checkpoint, without their content."""
    path = folder / (name or f"step-{step:08d}")
    path.mkdir(parents=True)
    weights = ["adapter_model.safetensors", "adapter_config.json"] if lora else ["model.safetensors", "config.json"]
    weights = weights if format == 3 else ["weights.safetensors"]
    for file in (*weights, "state.pt"):
        (path / file).write_text("{}")
    manifest = {"format": format, "step": step, "files": {file: {} for file in (*weights, "state.pt")}}
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


def started(services: Services, **settings: object) -> str:
    """A stored training on a dataset that never begins: whoever starts jobs waits for the lock."""
    made = freeze_runs(services, run("t1", user(), answer("Done.")), name="good-runs")
    return start_training(services, "sft", "starter", made, name="picker", hyperparameters=settings).job_id


def test_a_checkpoint_is_an_agent_that_outlives_its_folder(waiting: Services) -> None:
    job_id = started(waiting, lora={"rank": 4})
    kept = waiting.settings.jobs_dir / job_id / "checkpoints"
    error = error_of(resolve_agent, waiting, job_id)
    assert error.code == "model_not_found"
    assert "is queued and has neither" in error.message
    folder = checkpoint(kept, 20)
    agent = resolve_agent(waiting, f"{job_id}/checkpoints/step-20")
    assert resolve_agent(waiting, f"jobs/{job_id}/checkpoints/step-20") == agent
    assert agent.id == "agent:picker-step-20@1"
    assert (agent.parent, agent.dataset_id) == ("agent:starter@1", waiting.store.datasets.get("good-runs").id)
    assert agent.job_id == f"{job_id}/checkpoints/step-00000020"
    for reference in (job_id, f"{job_id}/checkpoints/step-00000020", str(folder)):
        assert resolve_agent(waiting, reference).id == agent.id
    assert agent.model.source == "starter"
    shutil.rmtree(folder)
    assert sorted(path.name for path in Path(agent.model.adapter).iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert resolve_agent(waiting, f"{job_id}/checkpoints/step-20").id == agent.id
    checkpoint(kept, 40)
    checkpoint(kept, 30, name="best")
    assert resolve_agent(waiting, job_id).id == "agent:picker-step-40@1", "the newest"
    assert resolve_agent(waiting, f"{job_id}/checkpoints/best").id == "agent:picker-step-30@1"
    missing = error_of(resolve_agent, waiting, f"{job_id}/checkpoints/step-7")
    assert missing.code == "model_not_found"
    assert "but step-00000040;" in missing.message
    assert error_of(resolve_agent, waiting, f"{job_id}/../../x").code == "not_found"


def test_a_checkpoint_of_all_weights_is_a_model_folder_and_an_earlier_version_is_refused(waiting: Services) -> None:
    job_id = started(waiting)
    kept = waiting.settings.jobs_dir / job_id / "checkpoints"
    checkpoint(kept, 1, format=2)
    assert error_of(resolve_agent, waiting, job_id).code == "checkpoint_outdated"
    checkpoint(kept, 2, lora=False)
    model_ = resolve_agent(waiting, job_id).model
    assert (model_.source, model_.adapter) == ("folder", None)
    assert Path(model_.path).parent == waiting.settings.agents_dir


def test_the_agent_of_a_job_goes_before_its_checkpoints(waiting: Services) -> None:
    job_id = started(waiting, lora={})
    checkpoint(waiting.settings.jobs_dir / job_id / "checkpoints", 20)
    starter = ModelRef(source="starter", path=str(starter_folder()))
    done = waiting.store.agents.add(Agent(name="picker", model=starter, job_id=job_id), waiting.clock())
    for reference in (job_id, f"job://{job_id}", f"agent://{done.id}"):
        assert resolve_agent(waiting, reference).id == done.id
    evaluation = evaluate_agent(waiting, agent=job_id, environment="quintain/inventory")
    assert error_of(resolve_agent, waiting, evaluation.job_id).code == "no_agent"
    assert error_of(resolve_agent, waiting, "job-unknown").code == "not_found"


def test_adapters_asked_for_without_settings_go_on_with_those_of_the_agents_adapter(
    waiting: Services, inbox: Path
) -> None:
    started(waiting)
    folder = adapter(inbox / "mine", "quintain/starter")
    config = {"peft_type": "LORA", "base_model_name_or_path": "quintain/starter", "r": 4, "lora_alpha": 8}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"target_modules": ["v_proj", "q_proj"]}))
    own = LoraConfig(rank=4, alpha=8, targets=("q_proj", "v_proj"))
    for settings, expected in (({"lora": {}}, own), ({"lora": {"rank": 4}}, own), ({}, None)):
        job = start_training(waiting, "sft", "mine", dataset_id="good-runs", hyperparameters=settings).job_id
        spec = waiting.store.jobs.get(job).spec
        assert spec.config.lora == expected
    others = {"lora": {"rank": 2, "alpha": 8}}
    error = error_of(start_training, waiting, "sft", "mine", dataset_id="good-runs", hyperparameters=others)
    assert (error.code, "(rank 4), got others; set lora to {}" in error.message) == ("adapter_exists", True), error
    plan = plan_training(waiting, method="sft", model="mine", dataset_id="good-runs", hyperparameters={"lora": {}})
    assert plan.hyperparameters["lora"]["targets"] == ["q_proj", "v_proj"]
    assert plan.hyperparameters["lora"]["rank"] == 4
