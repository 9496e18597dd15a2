"""The trained weights of a checkpoint, in the files of a model or an adapter."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from quintain.trainers.distributed.sharding import local_shard
from quintain.trainers.models.adapters import own_embeddings
from quintain.trainers.models.loading import is_adapter, trainable
from quintain.trainers.models.tokenizer_files import save_tokenizer
from quintain.trainers.models.value_head import FILE_NAME, head_of, save_head

_MODEL = "model.safetensors"
_ADAPTER = "adapter_model.safetensors"
_HEAD = "value_head."


class _Place(NamedTuple):
    file: str
    name: str


def write_weights(folder: Path, model: Any, weights: dict[str, torch.Tensor], tokenizer: Any) -> None:
    """Write weights so that the folder is one of a model, with its tokenizer, or of an adapter."""
    places = _places(model)
    main = _ADAPTER if is_adapter(model) else _MODEL

    def stored_in(file: str) -> dict[str, torch.Tensor]:
        return {places[name].name: tensor for name, tensor in weights.items() if places[name].file == file}

    tensors = stored_in(main)
    if is_adapter(model):
        model.peft_config["default"].save_pretrained(str(folder))
        tensors = own_embeddings(model) | tensors
    elif hasattr(model, "config"):
        stored = model.state_dict().keys()
        frozen = ((name, p) for name, p in model.named_parameters() if not p.requires_grad)
        tensors |= {
            name: x.detach().cpu().contiguous()
            for name, x in (*model.named_buffers(), *frozen)
            if name in stored and not name.startswith(_HEAD)
        }
        model.config.save_pretrained(folder)
    if tokenizer is not None:  # of an adapter too, which may have come with its own
        save_tokenizer(tokenizer, folder)
    save_file(tensors, folder / main, {"format": "pt"})
    if (head := head_of(model)) is not None:
        save_head(head.names, stored_in(FILE_NAME), folder)


def read_weights(folder: Path, model: Any) -> None:
    """Copy the weights of a checkpoint into the trainable parameters; of a sharded model, this process's parts."""
    parameters, places = trainable(model), _places(model)
    with torch.no_grad(), ExitStack() as stack:
        files = {
            file: stack.enter_context(safe_open(folder / file, framework="pt"))
            for file in {place.file for place in places.values()}
        }
        for name, place in places.items():
            parameters[name].copy_(local_shard(files[place.file].get_tensor(place.name), parameters[name]))


def _places(model: Any) -> dict[str, _Place]:
    """Return the file of each trainable parameter and its name there."""
    names = list(trainable(model))
    heads = {name: _Place(FILE_NAME, name.removeprefix(_HEAD)) for name in names if name.startswith(_HEAD)}
    others = [name for name in names if name not in heads]
    if not is_adapter(model):
        return heads | {name: _Place(_MODEL, name) for name in others}
    from peft.utils import get_peft_model_state_dict

    # peft knows the names in its files only for a whole state: numbers in place of the weights show where each goes.
    numbers = {name: torch.tensor(number) for number, name in enumerate(others)}
    stored = get_peft_model_state_dict(model, numbers, save_embedding_layers=False)
    by_number = {int(number): name for name, number in stored.items()}
    return heads | {name: _Place(_ADAPTER, by_number.get(number, name)) for number, name in enumerate(others)}
