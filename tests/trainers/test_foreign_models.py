"""Models of other programs: adapters of TRL and Unsloth, pickled weights, GGUF files."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scripts.training_paths import ARCHITECTURES
from transformers import T5Config

from gguf_files import save_qwen2, write_gguf
from quintain.errors import InvalidInput, NotFound
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.trainers.engine.forward import Engine
from quintain.trainers.loop.checkpoint_weights import write_weights
from quintain.trainers.models.loading import load_model, open_tokenizer, save_model, trainable
from tiny_models import save_tiny_model, tiny_tokenizer

TEXT = "The price of the lamp is 40."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("base") / "tiny", hidden=16)


@pytest.fixture(scope="module")
def peft_adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter as peft writes it for TRL and Unsloth: on two modules, of which one has another rank."""
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model

    model = load_model(ModelRef(source="folder", path=str(base))).model
    config = PeftLora(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 2})
    adapted = get_peft_model(model, config)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter)
    folder = tmp_path_factory.mktemp("adapters") / "trl"
    adapted.save_pretrained(str(folder))
    return folder


def logits(base: Path, adapter: Path | None = None, **options: Any) -> torch.Tensor:
    ref = ModelRef(source="folder", path=str(base), adapter=str(adapter) if adapter else None)
    loaded = load_model(ref, **options)
    with torch.no_grad():
        found: torch.Tensor = loaded.model(**loaded.tokenizer(TEXT, return_tensors="pt")).logits
    return found


def test_a_pickled_adapter_loads_like_the_same_one_in_safetensors(
    base: Path, peft_adapter: Path, tmp_path: Path
) -> None:
    pickled = Path(shutil.copytree(peft_adapter, tmp_path / "pickled"))
    torch.save(load_file(pickled / "adapter_model.safetensors"), pickled / "adapter_model.bin")
    (pickled / "adapter_model.safetensors").unlink()
    expected = logits(base, peft_adapter)
    assert torch.equal(logits(base, pickled), expected)
    assert not torch.equal(logits(base), expected)
    assert (logits(base, peft_adapter, merge=False) - expected).abs().max() < 1e-5


def test_a_pickle_with_code_is_refused_and_not_run(base: Path, peft_adapter: Path, tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    hostile = Path(shutil.copytree(peft_adapter, tmp_path / "hostile"))
    (hostile / "adapter_model.safetensors").unlink()
    for content in (pickle.dumps(Code()), b"", b"\x80\x04."):
        (hostile / "adapter_model.bin").write_bytes(content)
        with pytest.raises(InvalidInput, match="model_damaged"):
            logits(base, hostile)
    assert not (tmp_path / "ran").exists()


def test_an_adapter_whose_weights_find_no_place_is_refused_not_ignored(
    base: Path, peft_adapter: Path, tmp_path: Path
) -> None:
    """Those of a model with vision have other names, and peft would only warn."""
    renamed = Path(shutil.copytree(peft_adapter, tmp_path / "renamed"))
    weights = load_file(renamed / "adapter_model.safetensors")
    other = {name.replace(".model.layers", ".model.language_model.layers"): w for name, w in weights.items()}
    save_file(other, renamed / "adapter_model.safetensors")
    with pytest.raises(InvalidInput, match=r"model_mismatch.*does not fit"):
        logits(base, renamed)


def test_an_adapter_of_another_kind_than_lora_is_named(base: Path, peft_adapter: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(peft_adapter, tmp_path / "other"))
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "IA3"}))
    with pytest.raises(InvalidInput, match=r"adapter_unsupported.*expected a LoRA adapter .*got IA3"):
        logits(base, other)


def test_an_adapter_that_is_trained_on_names_the_base_that_it_now_has(
    base: Path, peft_adapter: Path, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(base, tmp_path / "base"))
    ref = ModelRef(source="folder", path=str(copied), adapter=str(peft_adapter))
    loaded = load_model(ref, lora=LoraConfig(rank=4, alpha=8, targets=("q_proj", "v_proj")), train=True)
    save_model(loaded.model, loaded.tokenizer, tmp_path / "out")
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(copied)
    assert torch.equal(logits(base, tmp_path / "out"), logits(base, peft_adapter))


def test_an_adapter_brings_the_tokenizer_that_it_was_trained_with(
    base: Path, peft_adapter: Path, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(peft_adapter, tmp_path / "own"))
    tiny_tokenizer("{{ messages[0].content }}").save_pretrained(own)
    for folder, template in ((own, "{{ messages[0].content }}"), (peft_adapter, tiny_tokenizer().chat_template)):
        ref = ModelRef(source="folder", path=str(base), adapter=str(folder))
        assert load_model(ref).tokenizer.chat_template == open_tokenizer(ref).tokenizer.chat_template == template


def test_a_model_with_images_has_the_template_of_its_processor(base: Path, tmp_path: Path) -> None:
    """As LLaVA, SmolVLM and Mistral Small 3.1: `chat_template.json`, which tokenizers do not read."""
    folder = Path(shutil.copytree(base, tmp_path / "model"))
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").rename(folder / "chat_template.json")
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": template}))
    ref = ModelRef(source="folder", path=str(folder))
    assert open_tokenizer(ref).tokenizer.chat_template == template


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`", "ignore:Input and output embeddings are")
@pytest.mark.parametrize("trained", [True, False], ids=["modules to save", "stored beside it"])
def test_an_adapter_with_added_tokens_brings_their_embeddings(base: Path, tmp_path: Path, trained: bool) -> None:
    """As axolotl and LLaMA-Factory write them for new control tokens; the base has no rows for these."""
    from peft import LoraConfig as PeftLora
    from peft import get_peft_model

    loaded = load_model(ModelRef(source="folder", path=str(base)))
    loaded.tokenizer.add_special_tokens({"additional_special_tokens": ["<|call|>", "<|done|>"]})
    rows = len(loaded.tokenizer)
    loaded.model.resize_token_embeddings(rows)
    parts = ["embed_tokens", "lm_head"] if trained else None
    adapted = get_peft_model(loaded.model, PeftLora(r=2, target_modules=["q_proj"], modules_to_save=parts))
    torch.nn.init.normal_(adapted.get_input_embeddings().weight)
    adapted.save_pretrained(str(tmp_path / "adapter"), save_embedding_layers=True)
    loaded.tokenizer.save_pretrained(tmp_path / "adapter")
    ids = torch.tensor([[7, rows - 1, 9, rows - 2, 11]])
    with torch.no_grad():
        expected = adapted(input_ids=ids).logits
    ref, lora = ModelRef(source="folder", path=str(base), adapter=str(tmp_path / "adapter")), LoraConfig(rank=2)
    further = load_model(ref, lora=lora, train=True)
    save_model(further.model, further.tokenizer, tmp_path / "again")
    (tmp_path / "kept").mkdir()
    write_weights(tmp_path / "kept", further.model, trainable(further.model), further.tokenizer)
    for folder in ("adapter", "again", "kept"):
        read = load_model(ref.model_copy(update={"adapter": str(tmp_path / folder)}))
        assert len(read.tokenizer) == rows
        with torch.no_grad():
            torch.testing.assert_close(read.model(input_ids=ids).logits, expected)


@pytest.mark.parametrize("title", ["Mistral 3", "Gemma 3 with images"])
def test_a_model_that_reads_images_too_is_trained_on_text_with_adapters_where_text_passes(
    title: str, tmp_path: Path
) -> None:
    (architecture,) = [one for one in ARCHITECTURES if one.title == title]
    tokenizer = tiny_tokenizer()
    architecture.build(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    ref, lora = ModelRef(source="folder", path=str(tmp_path / "base")), LoraConfig(rank=2)
    model = load_model(ref, lora=lora, train=True).model
    assert Engine.of(model).path == "packed"
    ids = torch.tensor([[5, 6, 7, 8]])
    model(input_ids=ids, labels=ids).loss.backward()
    without = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
    save_model(model, tokenizer, tmp_path / "out")
    again = load_model(ref.model_copy(update={"adapter": str(tmp_path / "out")}), lora=lora, train=True).model
    assert len(trainable(again)) == len(trainable(model)) > 0


def test_a_model_of_another_kind_is_named_instead_of_called_damaged(base: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(base, tmp_path / "t5"))
    T5Config(vocab_size=512).save_pretrained(folder)
    with pytest.raises(InvalidInput, match=r"unsupported_model.*expected a causal language model.*got 't5'"):
        load_model(ModelRef(source="folder", path=str(folder)))


def test_a_gguf_file_is_dequantised_with_its_tokenizer_and_trained_with_adapters(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    base = save_qwen2(tmp_path / "base")
    file = write_gguf(tmp_path, base)
    ref, own = ModelRef(source="gguf", path=str(file)), ModelRef(source="folder", path=str(base))
    loaded, original = load_model(ref), load_model(own)
    ids = original.tokenizer(TEXT).input_ids
    assert loaded.tokenizer(TEXT).input_ids == ids
    assert loaded.tokenizer.chat_template == original.tokenizer.chat_template
    assert loaded.context_tokens == open_tokenizer(ref).context_tokens == 1024
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    for name, weight in original.model.named_parameters():
        bound = weight.abs().max() / 127  # of 8 bits
        assert (loaded.model.get_parameter(name) - weight).abs().max() <= bound, name
    adapted = load_model(ref, lora=LoraConfig(rank=2), train=True)
    save_model(adapted.model, adapted.tokenizer, tmp_path / "out")
    config = json.loads((tmp_path / "out/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(file)
    assert load_model(ref.model_copy(update={"adapter": str(tmp_path / "out")})).warnings == ()
    save_model(loaded.model, loaded.tokenizer, tmp_path / "float")
    assert len(load_model(ModelRef(source="folder", path=str(tmp_path / "float"))).tokenizer) == len(loaded.tokenizer)


def test_a_damaged_or_missing_gguf_file_is_explained(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    file = tmp_path / "m.gguf"
    with pytest.raises(NotFound, match="no GGUF file"):
        load_model(ModelRef(source="gguf", path=str(file)))
    for content in (b"", b"GGUF", b"GGUF" + np.arange(100, dtype="<u8").tobytes()):
        file.write_bytes(content)
        with pytest.raises(InvalidInput, match=r"model_damaged.*cannot read m\.gguf"):
            load_model(ModelRef(source="gguf", path=str(file)))
