from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.trainers.models.loading import load_model, save_model
from tiny_models import save_tiny_model, tiny_model, tiny_tokenizer


def ref(path: Path | str, **more: str) -> ModelRef:
    return ModelRef.model_validate({"source": "folder", "path": str(path), **more})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny", hidden=16)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that no test changes."""
    return save_tiny_model(tmp_path_factory.mktemp("base") / "tiny", hidden=16)


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of that model."""
    folder = tmp_path_factory.mktemp("adapters") / "adapter"
    loaded = load_model(ref(base), lora=LoraConfig(rank=2), train=True)
    save_model(loaded.model, loaded.tokenizer, folder)
    return folder


def test_a_saved_model_replaces_the_folder_and_loads_with_the_same_weights_tokenizer_and_template(
    base: Path, tmp_path: Path
) -> None:
    loaded = load_model(ref(base))
    target = tmp_path / "copy"
    target.mkdir()
    (target / "left-over").touch()
    save_model(loaded.model, loaded.tokenizer, target)
    assert not (target / "left-over").exists()
    again = load_model(ref(target))
    assert all(torch.equal(a, b) for a, b in zip(loaded.model.parameters(), again.model.parameters(), strict=True))
    assert again.tokenizer.chat_template == tiny_tokenizer().chat_template
    assert again.context_tokens == 1024
    assert not again.model.training
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_weights_are_float32_on_the_cpu_whatever_the_file_holds(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden=16).to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = load_model(ref(tmp_path), train=True).model
    if model.device.type == "cpu":
        assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.training


def test_missing_files_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no model folder at .*nowhere"):
        load_model(ref(tmp_path / "nowhere"))
    with pytest.raises(NotFound, match=r"quintain.no-such-starter"):
        load_model(ModelRef(source="starter", path="no-such-starter"))
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


def test_weights_without_a_place_in_the_model_are_a_warning(folder: Path) -> None:
    """transformers computes without them, as without the last layers, or the biases, of another configuration."""
    config = json.loads((folder / "config.json").read_text())
    fewer = {"num_hidden_layers": 1, "layer_types": ["full_attention"]}
    (folder / "config.json").write_text(json.dumps(config | fewer))
    (warning,) = load_model(ref(folder)).warnings
    assert re.search(r"has no place for 11 of its weights, first model\.layers\.1\.", warning)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"intermediate_size": 48}, r"first model\.layers\.0\.mlp\.down_proj\.weight \[16, 32\] for \[16, 48\]"),
        ({"num_hidden_layers": 3}, r"model_damaged.*config\.json in .*num_hidden_layers"),
    ],
    ids=["weights of another shape", "a configuration that contradicts itself"],
)
def test_a_configuration_that_does_not_fit_is_refused(folder: Path, change: dict[str, int], words: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(InvalidInput, match=words):
        load_model(ref(folder))


@pytest.mark.parametrize("left", [(), ("tokenizer_config.json",)])
def test_a_folder_without_a_tokenizer_is_refused(folder: Path, left: tuple[str, ...]) -> None:
    for name in {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} - set(left):
        (folder / name).unlink()
    with pytest.raises(InvalidInput, match=r"model_incomplete.*expected tokenizer files"):
        load_model(ref(folder))


def test_a_tokenizer_that_needs_a_further_package_is_refused_with_the_file_that_does_not(folder: Path) -> None:
    """As of folders from before `tokenizer.json`, and of those that Meta and Mistral publish."""
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    (folder / "tokenizer.model").write_bytes(b"not read without sentencepiece")
    with pytest.raises(InvalidInput, match=r"model_incomplete.*expected tokenizer\.json.*install sentencepiece"):
        load_model(ref(folder))


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(folder: Path) -> None:
    tiny_tokenizer(vocab=600).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<extra{i}>" for i in range(5)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(InvalidInput, match=r"expected at most .* embeddings"):
        load_model(ref(folder))
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})  # never read: rows are padded without it
    tokenizer.save_pretrained(folder)
    assert load_model(ref(folder)).tokenizer.pad_token == "[PAD]"


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


def test_lora_trains_adapters_only_and_unknown_targets_are_refused(base: Path) -> None:
    model = load_model(ref(base), lora=LoraConfig(rank=2), train=True).model
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    assert names
    assert all("lora_" in name for name in names)
    with pytest.raises(InvalidInput, match=r"lora\.targets"):
        load_model(ref(base), lora=LoraConfig(targets=("no_such_layer",)), train=True)


def test_an_adapter_of_another_model_is_refused_or_loaded_with_a_warning(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    assert load_model(ref(base, adapter=str(adapter))).warnings == ()
    other = save_tiny_model(tmp_path / "other", hidden=32)
    with pytest.raises(InvalidInput, match="does not fit its model"):
        load_model(ref(other, adapter=str(adapter)))
    alike = save_tiny_model(tmp_path / "alike", hidden=16, seed=1)
    (warning,) = load_model(ref(alike, adapter=str(adapter))).warnings
    assert f"trained on the model in {base}, and the agent's model is {alike}" in warning


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
def test_a_damaged_adapter_is_distinguished_from_one_of_another_model(
    base: Path, adapter: Path, tmp_path: Path, file: str, content: bytes | None
) -> None:
    copied = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    (copied / file).unlink()
    if content is not None:
        (copied / file).write_bytes(content)
    with pytest.raises(InvalidInput, match=r"model_damaged.*adapter.*is damaged") as raised:
        load_model(ref(base, adapter=str(copied)))
    assert "base model" not in raised.value.message
