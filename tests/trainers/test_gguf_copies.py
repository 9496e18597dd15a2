"""Converted copies of GGUF models: equal to the file, written once, and safe to share."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gguf_files import save_qwen2, write_gguf
from quintain.errors import InvalidInput
from quintain.records.agent import ModelRef
from quintain.records.hyperparameters.methods import LoraConfig
from quintain.trainers.models import gguf_copies
from quintain.trainers.models.gguf_copies import UnfaithfulCopy, keep_copies, open_copy, write_manifest
from quintain.trainers.models.loading import LoadedModel, load_model, open_tokenizer
from tiny_models import tiny_tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of copies in which this process keeps them."""
    keep_copies(tmp_path / "copies")
    yield tmp_path / "copies"
    keep_copies(None)


def facts(loaded: LoadedModel) -> dict[str, Any]:
    """All that a model computes with, and what its adapters would name as their base."""
    tensors = {**dict(loaded.model.named_parameters()), **dict(loaded.model.named_buffers())}
    unused = dict.fromkeys(("_name_or_path", "architectures", "transformers_version"))
    return {
        **{name: tensor.detach().clone() for name, tensor in tensors.items()},
        "config": loaded.model.config.to_dict() | unused,
        "generation": loaded.model.generation_config.to_diff_dict() | {"transformers_version": None},
        "tokenizer": (loaded.tokenizer.backend_tokenizer.to_str(), loaded.tokenizer.special_tokens_map),
        "template": loaded.tokenizer.chat_template,
        "context": loaded.context_tokens,
        "base": loaded.model.name_or_path,
    }


def require_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        equal = torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value
        assert equal, name


def test_a_copy_loads_bit_equal_to_its_file_and_is_written_once(tmp_path: Path, folder: Path) -> None:
    file = write_gguf(tmp_path, save_qwen2(tmp_path / "base"))
    ref = ModelRef(source="gguf", path=str(file))

    def load(dtype: Any = None, lora: LoraConfig | None = None) -> dict[str, Any]:
        torch.manual_seed(3)
        return facts(load_model(ref, dtype=dtype, lora=lora, train=lora is not None))

    variants: list[dict[str, Any]] = [{}, {"dtype": "auto"}, {"lora": LoraConfig(rank=2)}]
    keep_copies(None)
    direct = [load(**variant) for variant in variants]
    assert not folder.exists()
    keep_copies(folder)
    assert open_tokenizer(ref).model is None
    assert not folder.exists()  # a tokenizer alone converts nothing
    for variant, expected in zip(variants, direct, strict=True):
        require_equal(load(**variant), expected)
    (copy,) = [path for path in folder.iterdir() if path.is_dir()]
    written = copy.stat().st_ino
    file_before = file.read_bytes()
    file.write_bytes(
        file_before[:1000] + bytes(len(file_before) - 1000)
    )  # the time of the file and its content are the key
    with pytest.raises(InvalidInput, match=r"model_damaged|model_mismatch"):
        load()
    file.write_bytes(file_before)
    os.utime(file, ns=(1, 1))
    require_equal(load(), direct[0])
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 2
    assert copy.stat().st_ino == written
    assert open_tokenizer(ref).tokenizer.backend_tokenizer.to_str() == direct[0]["tokenizer"][0]


def test_a_tokenizer_that_does_not_write_what_it_reads_is_refused(tmp_path: Path) -> None:
    base, tokenizer = save_qwen2(tmp_path / "base"), tiny_tokenizer()
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    places = {name: vocabulary.index(name) for name in ("q", "j")}
    vocabulary[places["q"]], vocabulary[places["j"]] = "[unused1]", "[unused2]"
    file = write_gguf(tmp_path, base, vocabulary=vocabulary)
    with pytest.raises(InvalidInput, match=r"model_damaged.*tokenizer"):
        open_tokenizer(ModelRef(source="gguf", path=str(file)))


def gguf_file(folder: Path, content: bytes = b"GGUF") -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.gguf"
    path.write_bytes(content)
    return path


class Conversions:
    """Writes copies with one file, and counts them."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, destination: Path) -> None:
        self.n += 1
        destination.mkdir()
        (destination / "model.safetensors").write_bytes(b"weights")
        write_manifest(destination)


def test_processes_that_need_the_same_copy_at_once_write_it_once(tmp_path: Path, folder: Path) -> None:
    file, convert, found = gguf_file(tmp_path), Conversions(), list[Path | None]()
    together = threading.Barrier(4)

    def need() -> None:
        together.wait()
        with open_copy(file, convert) as copy:  # the locks of descriptors hold between threads as between processes
            found.append(copy)
            assert copy is not None
            assert (copy / "model.safetensors").read_bytes() == b"weights"

    threads = [threading.Thread(target=need) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (convert.n, len(found), len(set(found))) == (1, 4, 1)
    assert found[0] is not None
    (found[0] / "model.safetensors").unlink()  # by someone who frees disk space
    with open_copy(file) as copy:
        assert copy is None


def test_copies_that_nobody_uses_give_way_and_one_that_is_loaded_stays(tmp_path: Path, folder: Path) -> None:
    convert = Conversions()
    files = [gguf_file(tmp_path, bytes([i])) for i in range(7)]
    with open_copy(files[0], convert) as first:
        assert first is not None
        os.utime(first, ns=(0, 0))
        for i, file in enumerate(files[1:], start=1):
            with open_copy(file, convert) as copy:
                assert copy is not None
            os.utime(copy, ns=(i, i))
        kept = {path for path in folder.iterdir() if path.is_dir()}
        assert first in kept
        assert copy in kept
        assert len(kept) == 5
    assert convert.n == 7


def test_a_copy_that_would_load_as_another_model_is_tried_once(tmp_path: Path, folder: Path) -> None:
    file, tried = gguf_file(tmp_path), list[Path]()

    def refuse(destination: Path) -> None:
        tried.append(destination)
        raise UnfaithfulCopy("it would load with another tokenizer")

    for _ in range(2):
        with open_copy(file, refuse) as copy:
            assert copy is None
    assert len(tried) == 1


def test_without_room_or_permission_a_model_is_loaded_from_its_file(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, convert = gguf_file(tmp_path, bytes(100)), Conversions()
    monkeypatch.setattr(gguf_copies, "shutil", SimpleNamespace(disk_usage=lambda path: SimpleNamespace(free=1599)))
    with open_copy(file, convert) as copy:
        assert (copy, convert.n) == (None, 0)
    monkeypatch.setattr(gguf_copies, "shutil", shutil)

    def refuse(destination: Path) -> None:
        raise OSError("the disk is full")

    with open_copy(file, refuse) as copy:
        assert copy is None
    folder.rename(tmp_path / "moved")
    folder.write_bytes(b"a file where the folder should be")
    with open_copy(file, convert) as copy:
        assert (copy, convert.n) == (None, 0)
