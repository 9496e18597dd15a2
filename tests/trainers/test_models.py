from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters import LoraConfig
from quintain.trainers.models import load_model, save_model
from tiny_models import save_tiny_model, tiny_model, tiny_tokenizer

# peft 0.21 asks transformers 5.23 by the name that it had before.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")


def ref(path: Path | str, **more: str) -> ModelRef:
    return ModelRef.model_validate({"source": "folder", "path": str(path), **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny", hidden=16)


def test_a_saved_model_loads_with_the_same_weights_tokenizer_and_template(folder: Path, tmp_path: Path) -> None:
    loaded = load_model(ref(folder))
    save_model(loaded.model, loaded.tokenizer, tmp_path / "copy")
    again = load_model(ref(tmp_path / "copy"))
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), again.model.parameters(), strict=True))
    assert again.tokenizer.chat_template == tiny_tokenizer().chat_template
    assert again.context_tokens == 1024
    assert not again.model.training
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_saving_again_replaces_what_stood_there(folder: Path, tmp_path: Path) -> None:
    loaded = load_model(ref(folder))
    target = tmp_path / "out"
    target.mkdir()
    (target / "left-over").touch()
    save_model(loaded.model, loaded.tokenizer, target)
    assert not (target / "left-over").exists()
    assert load_model(ref(target)).context_tokens == 1024


def test_weights_are_float32_on_the_cpu_whatever_the_file_holds(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden=16).to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_model(ref(tmp_path), train=True).model
    if model.device.type == "cpu":
        assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.training


def test_the_starter_is_found_in_the_package() -> None:
    with pytest.raises(NotFound, match=r"quintain.no-such-starter"):
        load_model(ModelRef(source="starter", path="no-such-starter"))


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no model folder at .*nowhere"):
        load_model(ref(tmp_path / "nowhere"))
    with pytest.raises(NotFound, match="no adapter at"):
        load_model(ref(folder, adapter=str(tmp_path / "nowhere")))
    (folder / "config.json").unlink()
    with pytest.raises(InvalidInput, match=r"expected config\.json"):
        load_model(ref(folder))


def test_weights_in_another_format_are_not_read(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidInput, match="can run code"):
        load_model(ref(folder))


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_file_is_an_explained_error(folder: Path, file: str) -> None:
    (folder / file).write_bytes((folder / file).read_bytes()[:100])
    with pytest.raises(InvalidInput, match=r"model_damaged.*cannot read"):
        load_model(ref(folder))


def test_gaps_in_the_weights_are_refused_not_filled(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    removed = sorted(name for name in weights if "mlp" in name)[0]
    del weights[removed]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InvalidInput, match=f"model_mismatch.*{removed}"):
        load_model(ref(folder))


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    with pytest.raises(InvalidInput, match=r"first model\.layers\.0\.mlp\.down_proj\.weight \[16, 32\] for \[16, 48\]"):
        load_model(ref(folder))


def test_a_configuration_that_contradicts_itself_is_named_and_not_the_tokenizer(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(InvalidInput, match=r"model_damaged.*config\.json in .*num_hidden_layers"):
        load_model(ref(folder))


@pytest.mark.parametrize("left", [(), ("tokenizer_config.json",)])
def test_a_folder_without_a_tokenizer_is_told_as_that(folder: Path, left: tuple[str, ...]) -> None:
    for name in {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} - set(left):
        (folder / name).unlink()
    with pytest.raises(InvalidInput, match=r"model_incomplete.*expected tokenizer files"):
        load_model(ref(folder))


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(folder: Path) -> None:
    tiny_tokenizer(vocab=600).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<extra{i}>" for i in range(5)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(InvalidInput, match=r"expected at most .* embeddings"):
        load_model(ref(folder))


def test_remote_code_is_never_run(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InvalidInput):
        load_model(ref(folder))
    assert not (tmp_path / "ran").exists()


def test_a_hub_model_that_is_not_here_is_an_error_at_once_when_offline() -> None:
    with pytest.raises(Unavailable, match=r"hub_unreachable.*name its folder"):
        load_model(ModelRef(source="hub", path="nobody/no-such-model"))
    with pytest.raises(InvalidInput, match="expected a Hub name"):
        load_model(ModelRef(source="hub", path="not a name"))


def test_lora_trains_adapters_only_and_unknown_targets_are_refused(folder: Path) -> None:
    model = load_model(ref(folder), lora=LoraConfig(rank=2), train=True).model
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert names
    assert all("lora_" in name for name in names)
    with pytest.raises(InvalidInput, match=r"lora\.targets"):
        load_model(ref(folder), lora=LoraConfig(targets=("no_such_layer",)), train=True)


def test_an_adapter_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    loaded = load_model(ref(folder), lora=LoraConfig(rank=2), train=True)
    save_model(loaded.model, loaded.tokenizer, tmp_path / "adapter")
    other = save_tiny_model(tmp_path / "other", hidden=32)
    with pytest.raises(InvalidInput, match="does not fit its model"):
        load_model(ref(other, adapter=str(tmp_path / "adapter")))
    with pytest.raises(InvalidInput, match=r"adapter \(rank 2"):
        load_model(ref(folder, adapter=str(tmp_path / "adapter")), lora=LoraConfig(rank=8), train=True)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("adapter_model.safetensors", bytes(3000)),
        ("adapter_model.safetensors", b""),
        ("adapter_model.safetensors", None),
        ("adapter_config.json", b"[1]"),
        ("adapter_config.json", b"{}"),
        ("adapter_config.json", b'{"peft_ty'),
    ],
)
def test_a_damaged_adapter_is_told_from_one_of_another_model(
    folder: Path, tmp_path: Path, file: str, content: bytes | None
) -> None:
    loaded = load_model(ref(folder), lora=LoraConfig(rank=2), train=True)
    save_model(loaded.model, loaded.tokenizer, tmp_path / "adapter")
    (tmp_path / "adapter" / file).unlink()
    if content is not None:
        (tmp_path / "adapter" / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"model_damaged.*adapter.*is damaged") as raised:
        load_model(ref(folder, adapter=str(tmp_path / "adapter")))
    assert "base model" not in raised.value.message


def test_an_adapter_of_another_folder_of_the_same_shape_is_loaded_with_a_warning(folder: Path, tmp_path: Path) -> None:
    loaded = load_model(ref(folder), lora=LoraConfig(rank=2), train=True)
    save_model(loaded.model, loaded.tokenizer, tmp_path / "adapter")
    other = save_tiny_model(tmp_path / "other", hidden=16, seed=1)
    adapter = str(tmp_path / "adapter")
    assert load_model(ref(folder, adapter=adapter)).warnings == ()
    (warning,) = load_model(ref(other, adapter=adapter)).warnings
    assert f"trained on the model in {folder}, and the agent's model is {other}" in warning
