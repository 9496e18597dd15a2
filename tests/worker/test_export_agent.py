"""The job kind `export_agent` in this process: what is written is the agent, or nothing is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from quintain.artifacts.transfers import fetch
from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.exporters.agent_card import model_card
from quintain.files import sha256_of
from quintain.jobs.processes import try_lock_folder, unlock
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.records.jobs.handover import AgentExport, Ancestor, ExportAgentSpec, ExportFormat, Provenance
from quintain.trainers.handover import writing
from quintain.trainers.models.loading import load_model, save_model
from quintain.trainers.models.value_head import head_of
from quintain.trainers.rendering.styles import FALLBACK_TEMPLATE
from quintain.worker.job_kinds.export_agent import run
from quintain.worker.job_kinds.transfers import portable_copy
from tiny_models import save_tiny_model, tiny_tokenizer
from trainers.runs import Recorder

JOB = "job-0000000001"


class Heard(Recorder):
    """A reporter that can do something at the beginning of a phase, or ask to stop; an export warns of nothing."""

    def __init__(self, at: dict[str, Callable[[], object]] | None = None, *, stop: bool = False) -> None:
        super().__init__()
        self.at, self.stop = at or {}, stop

    def phase(self, name: str) -> None:
        super().phase(name)
        self.at.get(name, lambda: None)()

    def warn(self, code: str, message: str) -> None:
        raise AssertionError((code, message))

    def should_stop(self) -> bool:
        return self.stop


def adapted(
    base: Path, folder: Path, targets: str | tuple[str, ...] = "all-linear", heads: tuple[str, ...] = ()
) -> str:
    """An adapter that is far from doing nothing."""
    lora = LoraConfig(rank=4, alpha=8, targets=targets)
    loaded = load_model(ModelRef(source="folder", path=str(base)), lora=lora, train=True, heads=heads)
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in loaded.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=chance))
    save_model(loaded.model, loaded.tokenizer, folder)
    return str(folder)


def agent_of(base: Path, adapter: str | None, **fields: Any) -> Agent:
    model = ModelRef(source="folder", path=str(base), adapter=adapter)
    return Agent(**({"id": "agent:clerk@1", "name": "clerk", "version": 1, "model": model} | fields))


def spec_of(agent: Agent, format: ExportFormat, destination: Path) -> ExportAgentSpec:
    result = Ancestor(agent=agent.id or "", methods=("sft",), dataset_id="ds-1", job_id="job-train")
    provenance = Provenance(ancestors=(result, Ancestor(agent="agent:base@1")))
    return ExportAgentSpec(agent=agent, format=format, destination=str(destination), provenance=provenance)


def export(agent: Agent, format: ExportFormat, destination: Path, heard: Heard | None = None) -> dict[str, Any]:
    return run(spec_of(agent, format, destination), destination.parent / JOB, heard or Heard()).report


class Exported(NamedTuple):
    base: Path
    agent: Agent
    folders: dict[str, Path]
    reports: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A base model, an agent with an adapter on it, and both of its exports."""
    root = tmp_path_factory.mktemp("exported")
    base = save_tiny_model(root / "base")
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, max_new_tokens=50)
    agent = agent_of(base, adapted(base, root / "adapter"), sampling=sampling, system_prompt='Say "moin".')
    folders = {"adapter": root / "out-adapter", "merged": root / "out-merged"}
    reports = {
        "adapter": export(agent, "adapter", folders["adapter"]),
        "merged": export(agent, "merged", folders["merged"]),
    }
    return Exported(base, agent, folders, reports)


def logprobs(model: Any) -> torch.Tensor:
    ids = torch.randint(3, 400, (2, 40), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        return torch.as_tensor(model.eval()(input_ids=ids).logits.log_softmax(-1))


def test_plain_transformers_and_peft_read_what_was_written_as_the_agent(exported: Exported) -> None:
    own = logprobs(load_model(exported.agent.model, merge=False).model)
    base = AutoModelForCausalLM.from_pretrained(exported.base)
    assert (logprobs(base) - own).abs().max() > 0.1  # the adapter does something
    merged = AutoModelForCausalLM.from_pretrained(exported.folders["merged"], dtype="auto")
    on_top = PeftModel.from_pretrained(base, str(exported.folders["adapter"]))
    assert merged.dtype == torch.float32
    assert (logprobs(merged) - own).abs().max() < 1e-5
    assert (logprobs(on_top) - own).abs().max() == 0
    chat = [{"role": "system", "content": "You sell."}, {"role": "user", "content": "Mango?"}]
    wanted = AutoTokenizer.from_pretrained(exported.base).apply_chat_template(chat, add_generation_prompt=True)
    for folder in exported.folders.values():
        message = AutoTokenizer.from_pretrained(folder).apply_chat_template(chat, add_generation_prompt=True)
        assert message["input_ids"] == wanted["input_ids"]


def test_a_job_that_resumes_a_failed_push_uploads_the_finished_export(exported: Exported, tmp_path: Path) -> None:
    folder, url = tmp_path / "out", f"memory://{tmp_path.name}/clerk"
    shutil.copytree(exported.folders["adapter"], folder)
    spec = spec_of(exported.agent, "adapter", folder).model_copy(update={"push_to": url})
    heard = Heard()
    report = run(spec, tmp_path / "job-resumed", heard).report
    assert (heard.phases, report["pushed_to"]) == (["uploading"], url)
    copy = fetch(url, tmp_path / "cache")
    described = {"README.md", "adapter_config.json", "agent.json"}
    assert {path.name for path in copy.iterdir() if path.read_bytes() != (folder / path.name).read_bytes()} == described
    assert {path.name for path in copy.iterdir()} == {path.name for path in folder.iterdir()}
    for path in copy.iterdir():
        assert str(exported.base.parent).encode() not in path.read_bytes(), path.name
    record = AgentExport.model_validate_json((copy / "agent.json").read_bytes())
    assert record.files == {name: sha256_of(copy / name) for name in record.files}
    assert record.agent.model == ModelRef(source="folder", path="base", adapter="adapter")
    assert json.loads((copy / "adapter_config.json").read_bytes())["base_model_name_or_path"] == "base"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "cache"}, "the copy for the upload is gone"
    for other in (spec.model_copy(update={"push_to": None}), spec.model_copy(update={"format": "merged"})):
        with pytest.raises(Conflict):
            run(other, tmp_path / "job-other", Heard())
    (folder / "README.md").write_text("changed", encoding="utf-8")
    with pytest.raises(Conflict):
        run(spec, tmp_path / "job-other", Heard())


def test_a_copy_for_other_machines_names_no_path_of_this_one_wherever_it_is_mentioned(tmp_path: Path) -> None:
    folder, tasks = tmp_path / "export", tmp_path / "gone.jsonl"
    folder.mkdir()
    described = {
        "environment": f"quintain/tasks?file={tasks}&split=train",
        "description": f"grpo in quintain/tasks?file={tasks}; see https://example.org/a/b and application/json, 1/2, /v1/models",
        "path": str(folder / "model.safetensors"),
    }
    (folder / "agent.json").write_text(json.dumps(described), encoding="utf-8")
    with portable_copy(folder, "job-1", ("agent.json",), ()) as (copy, changed):
        portable = json.loads((copy / "agent.json").read_bytes())
    assert changed == ["agent.json"]
    assert portable == {
        "environment": "quintain/tasks?file=gone.jsonl&split=train",
        "description": "grpo in quintain/tasks?file=gone.jsonl; see https://example.org/a/b and application/json, 1/2, /v1/models",
        "path": "export/model.safetensors",
    }
    assert json.loads((folder / "agent.json").read_bytes()) == described, "the original stays"


def test_the_folder_contains_what_another_program_needs_and_the_verification(exported: Exported) -> None:
    weights = {"adapter": ["adapter_config.json", "adapter_model.safetensors"]}
    weights["merged"] = ["config.json", "generation_config.json", "model.safetensors"]
    common = ["README.md", "agent.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    for format, folder in exported.folders.items():
        report = exported.reports[format]
        assert report["files"] == sorted([*common, *weights[format]]) == sorted(p.name for p in folder.iterdir())
        written = AgentExport.model_validate_json((folder / "agent.json").read_bytes())
        assert written.files == {name: sha256_of(folder / name) for name in written.files}
        assert set(written.files) == set(report["files"]) - {"agent.json"}
        readable = folder.stat().st_mode & 0o666
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {readable}, "the umask alone decides"
        assert (written.agent, written.job_id, written.format) == (exported.agent, JOB, format)
        assert (written.template["style"], written.template["end_tokens"]) == ("tools", ["<|im_end|>"])
        parity = report["parity"]
        assert (parity["compared_in"], parity["stored_in"], parity["bound"]) == ("float32", "float32", 1e-4)
        assert parity["max_difference"] < 1e-5
        assert (parity["greedy_tokens"], parity["greedy_tie"]) == (16, False)
        header, text = (folder / "README.md").read_text().split("---\n", 2)[1:]
        assert yaml.safe_load(header)["tags"] == ["quintain", "agent", "lora", "sft"]
        assert "| agent:clerk@1 | sft | ds-1 | job-train |" in text
        assert f"Base model: `{exported.base}` on the machine" in text
        whole = written.agent.model_copy(update={"model": written.agent.model.model_copy(update={"adapter": None})})
        of_all_weights = model_card(written.model_copy(update={"agent": whole}))
        assert "Base model: `agent:base@1`, all of whose weights were trained." in of_all_weights
        assert not list(folder.parent.glob(".out-*"))
    assert sha256_of(exported.folders["adapter"] / "adapter_model.safetensors") == sha256_of(
        Path(exported.agent.model.adapter or "") / "adapter_model.safetensors"
    )
    config = json.loads((exported.folders["adapter"] / "adapter_config.json").read_bytes())
    assert config["base_model_name_or_path"] == str(exported.base)
    generation = json.loads((exported.folders["merged"] / "generation_config.json").read_bytes())
    names = ("do_sample", "temperature", "top_p", "top_k", "min_p", "max_new_tokens")
    assert {name: generation[name] for name in names} == {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "max_new_tokens": 50,
    }


def test_an_attempt_after_the_end_gives_the_same_result_and_writes_nothing(exported: Exported) -> None:
    folder = exported.folders["merged"]
    before = (folder / "agent.json").stat().st_mtime_ns
    assert export(exported.agent, "merged", folder) == exported.reports["merged"]
    assert (folder / "agent.json").stat().st_mtime_ns == before
    other = spec_of(exported.agent, "merged", folder)
    with pytest.raises(Conflict, match="overwrite nothing"):  # of another job
        run(other, folder.parent / "job-0000000002", Heard())


def test_files_that_are_not_the_agent_fail_the_job_and_are_removed(exported: Exported, tmp_path: Path) -> None:
    aside = tmp_path / ".out.partial"

    def bend() -> None:
        path = aside / "adapter_model.safetensors"
        tensors = load_file(path)
        name = next(name for name in tensors if "lora_B" in name)
        save_file(tensors | {name: tensors[name] + 0.01}, path)

    def reword() -> None:
        path = aside / "chat_template.jinja"
        path.write_text(path.read_text().replace("# Tools", "# The tools"))

    for tamper, why in ((bend, "log-prob differs"), (reword, "by their fingerprints")):
        with pytest.raises(Conflict, match=why) as failed:
            export(exported.agent, "adapter", tmp_path / "out", Heard({"checking": tamper}))
        assert failed.value.code == "parity_failed"
        assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_is_refused_whenever_they_came(exported: Exported, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()

    def occupy() -> None:
        (taken / "mine.txt").write_text("mine")

    heard = Heard({"publishing": occupy})
    for _ in range(2):  # it comes while the export is written; it was there before
        with pytest.raises(Conflict, match="overwrite nothing"):
            export(exported.agent, "adapter", taken, heard)
        assert [path.name for path in tmp_path.iterdir()] == ["taken"]
        assert (taken / "mine.txt").read_text() == "mine"
    assert heard.phases.count("publishing") == 1


def test_what_a_killed_attempt_left_is_taken_over_and_what_a_live_one_writes_is_not(
    exported: Exported, tmp_path: Path
) -> None:
    out, left = tmp_path / "out", tmp_path / ".out.partial"
    (left / "half").mkdir(parents=True)
    (left / "half" / "written.safetensors").write_bytes(b"x")
    out.mkdir()  # an empty folder is as good as none
    lock = try_lock_folder(left)
    assert lock is not None
    with pytest.raises(Conflict, match="another job is writing"):
        export(exported.agent, "adapter", out)
    assert (left / "half" / "written.safetensors").exists()
    unlock(lock)
    assert "half" not in " ".join(export(exported.agent, "adapter", out)["files"])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_job_that_is_asked_to_stop_and_one_without_room_leave_nothing(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert export(exported.agent, "merged", tmp_path / "out", Heard(stop=True)) == {"stopped": True}
    usage = shutil.disk_usage(tmp_path)._replace(free=2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(Unavailable, match=r"expected 64(\.\d)? MiB .* got 1 MiB free") as full:
        export(exported.agent, "merged", tmp_path / "out")
    assert full.value.code == "disk_full"
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot write to"):
        export(exported.agent, "merged", tmp_path / "file" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.filterwarnings("ignore:Model has .tie_word_embeddings:UserWarning")
def test_an_adapter_on_a_tied_output_layer_is_merged_into_that_layer_alone(exported: Exported, tmp_path: Path) -> None:
    adapter = adapted(exported.base, tmp_path / "adapter", targets=("q_proj", "lm_head"))
    agent = agent_of(exported.base, adapter)
    own = logprobs(load_model(agent.model, merge=False).model)
    assert (logprobs(load_model(agent.model).model) - own).abs().max() < 1e-5  # as it acts
    report = export(agent, "merged", tmp_path / "out")
    assert report["parity"]["max_difference"] < 1e-5
    assert json.loads((tmp_path / "out" / "config.json").read_bytes())["tie_word_embeddings"] is False
    assert (logprobs(AutoModelForCausalLM.from_pretrained(tmp_path / "out")) - own).abs().max() < 1e-5


@pytest.mark.soak
def test_a_value_head_travels_and_is_compared(exported: Exported, tmp_path: Path) -> None:
    adapter = adapted(exported.base, tmp_path / "adapter", heads=("reward",))
    agent = agent_of(exported.base, adapter, role="reward_model")
    report = export(agent, "merged", tmp_path / "out")
    assert report["parity"]["max_value_difference"] < 1e-5
    read = load_model(ModelRef(source="folder", path=str(tmp_path / "out")), heads=("reward",))
    own = load_model(agent.model, heads=("reward",))
    assert torch.equal(head_of(read.model).weight, head_of(own.model).weight)  # type: ignore[union-attr]

    def bend() -> None:
        path = tmp_path / ".other.partial" / "value_head.safetensors"
        tensors = load_file(path)
        meta = {"heads": '["reward"]', "role": "reward_model"}
        save_file({**tensors, "bias": tensors["bias"] + 1}, path, meta)

    with pytest.raises(Conflict, match="value head's output differs"):
        export(agent, "adapter", tmp_path / "other", Heard({"checking": bend}))


@pytest.mark.soak
def test_weights_are_stored_as_the_base_has_them_and_in_shards_where_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_SHARD", "40KB")
    base = save_tiny_model(tmp_path / "float32", template=None)
    loaded = load_model(ModelRef(source="folder", path=str(base)), dtype=torch.bfloat16)
    save_model(loaded.model, tiny_tokenizer(None), tmp_path / "base")
    agent = agent_of(tmp_path / "base", adapted(tmp_path / "base", tmp_path / "adapter"))
    report = export(agent, "merged", tmp_path / "out")
    assert (report["parity"]["stored_in"], report["parity"]["bound"]) == ("bfloat16", 0.15)
    assert 0 < report["parity"]["max_difference"] < 0.15
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_bytes())
    shards = set(index["weight_map"].values())
    assert len(shards) > 1
    assert shards < set(report["files"])
    tensors = [tensor for name in shards for tensor in load_file(tmp_path / "out" / name).values()]
    assert {tensor.dtype for tensor in tensors} == {torch.bfloat16}
    # A base without a chat template: the one that the agent was trained with goes along.
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == FALLBACK_TEMPLATE
    assert "quintain-fallback" in report["notes"][0]


def test_an_agent_without_adapter_is_copied_with_a_note(exported: Exported, tmp_path: Path) -> None:
    report = export(agent_of(exported.base, None), "merged", tmp_path / "out")
    assert report["parity"]["max_difference"] == 0
    assert report["notes"] == [
        "agent:clerk@1 has no adapter (all weights trained), so nothing was merged: the weights are a copy"
    ]
    (exported.base / "config.json").rename(exported.base / "gone")
    try:
        with pytest.raises(InvalidInput, match=r"expected config\.json"):
            export(exported.agent, "merged", tmp_path / "other")
    finally:
        (exported.base / "gone").rename(exported.base / "config.json")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
