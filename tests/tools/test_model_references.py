"""What people have is a model: adapters with their base, exports, bare names of the inbox, GGUF files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gguf_files import whole
from quintain.errors import InvalidInput, NotFound
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.records.jobs.handover import Provenance
from quintain.settings import Settings
from quintain.tools.evaluation.rollouts import evaluate_agent
from quintain.tools.services import Services, open_services
from quintain.tools.training.agents import register_agent, resolve_agent
from quintain.tools.training.model_folders import starter_folder
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.start import start_training
from tools.stored_records import error_of, freeze_runs
from tools.test_export_agent import handed
from trajectory_runs import answer, run, user

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
    (folder / "model.safetensors").touch()
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
    assert again.id == "agent:picker@2"
    assert again.parent == trained.id
    assert (again.system_prompt, again.sampling, again.template) == ("Be brief.", trained.sampling, "react")
    assert again.model == ModelRef(source="folder", path=str(folder))
    (folder / "agent.json").write_text("{}")  # of another program
    assert resolve_agent(services, "picker-1-merged").name == "picker-1-merged"


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
    assert resolve_agent(waiting, job_id).id == done.id
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
    for settings, expected in (({"lora": {}}, own), ({"lora": {"rank": 2}}, LoraConfig(rank=2)), ({}, None)):
        job = start_training(waiting, "sft", "mine", dataset_id="good-runs", hyperparameters=settings).job_id
        spec = waiting.store.jobs.get(job).spec
        assert spec.config.lora == expected
    plan = plan_training(waiting, method="sft", model="mine", dataset_id="good-runs", hyperparameters={"lora": {}})
    assert plan.hyperparameters["lora"]["targets"] == ["q_proj", "v_proj"]
    assert plan.hyperparameters["lora"]["rank"] == 4
