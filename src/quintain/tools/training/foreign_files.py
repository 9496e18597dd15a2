"""Config files of other trainers: their keys as ours, and what they leave to defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from quintain.errors import InvalidInput
from quintain.next_step import Hint, call
from quintain.records.hyperparameters.foreign_settings import RENAMED
from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.records.wording import shown
from quintain.tools.training.methods import STAGES

_ELSEWHERE = {
    "model_name_or_path": "model",
    "model_name": "model",
    "model_id": "model",
    "base_model": "model",
    "pretrain": "model",
    "train_file": "dataset",
    "train_data": "dataset",
    "data_path": "dataset",
    "prompt_data": "dataset",
    "dataset_name": "dataset",
    "max_train_samples": "max_samples",
    "random_state": "seed",
    "save_path": "output_dir",
    **dict.fromkeys(("algorithm", "stage", "rl", "rlhf_type"), "method"),
    **dict.fromkeys(("val_set_size", "val_size", "split_dataset_ratio"), "validation_share"),
}
"""Key of other trainers' config files -> key here."""
_READ_ANYWAY: Mapping[str, tuple[Any, ...]] = {
    "split": ("train",),
    "field_messages": ("messages", "conversations", "conversation"),
    "field_chosen": ("chosen",),
    "field_rejected": ("rejected",),
    "message_field_role": ("from", "role"),
    "message_field_content": ("value", "content"),
    "message_property_mappings": ({"role": "from", "content": "value"}, {"role": "role", "content": "content"}),
    "field_tools": ("tools",),
    "roles_to_train": (["assistant"], ["gpt"]),
    "train_on_eos": ("turn",),
}
"""Key of an entry of axolotl's `datasets` -> values at which rows are read and trained on as here."""
_MADE = {"reward_model": "reward", "process_reward_model": "prm"}
"""Switch of axolotl -> the method that it states."""
TEMPLATES = ("template", "chat_template")
"""Keys under which a file names a template of its trainer."""
_TOKENIZERS = ("tokenizer_name_or_path", "tokenizer_name")


def canonical_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config file of another trainer under the keys of this one.

    Without a value, a seed and those keys are left out, and so is the model's own tokenizer. A block has settings, whatever
    its name.

    Raises:
        InvalidInput: two names of one key, or a dataset of which not all rows are taken as they are.
    """
    named = {name: value for name, value in document.items() if value is not None or name not in {"seed", *_ELSEWHERE}}
    match named.get("datasets"):
        # Axolotl's list. The format of rows is found from them; other keys choose or rename them.
        case [{"path": str(path), **more}] if "dataset" not in named:
            unread = {
                name: value
                for name, value in more.items()
                if name not in ("type", "ds_type") and value not in _READ_ANYWAY.get(str(name), ())
            }
            if unread:
                raise InvalidInput(
                    f"datasets: expected rows that are taken as they are, got {shown(unread)} for {path}; export the rows that are "
                    "meant (quintain export --rows), and name that dataset"
                )
            named["dataset"] = path
            del named["datasets"]
    for alias, key in _ELSEWHERE.items():
        if alias in named and not isinstance(named[alias], Mapping):
            value = named.pop(alias)
            if named.setdefault(key, value) != value:
                raise InvalidInput(f"config: expected one of `{alias}` and `{key}`, got both; keep one of them")
    for name in _TOKENIZERS:
        if named.get(name) == named.get("model"):
            named.pop(name, None)
    for switch, made in _MADE.items():
        if named.get(switch) is True and named.setdefault("method", made) == made:
            del named[switch]
    if isinstance(method := named.get("method"), str):
        named["method"] = STAGES.get(method, method)
    if named.get("method") == "dpo" and named.get("pref_loss") in ("orpo", "simpo"):
        named["method"] = named.pop("pref_loss")  # LLaMA-Factory's stage dpo has methods of their own as losses
    return named


_LISTING = "dataset_info.json"
"""LLaMA-Factory's list of datasets, in its folder `data` unless a file names another."""
_READ_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("instruction", "text"),
    "query": ("input",),
    "response": ("output",),
    "messages": ("conversations", "messages"),
    "kto_tag": ("label",),
    **{name: (name,) for name in ("system", "tools", "chosen", "rejected", "history")},
}
"""Column of an entry there -> names that are read as it anyway."""


def with_listed_dataset(document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a config file with the file that LLaMA-Factory's list names for its dataset, where there is such a list.

    Args:
        document: The config file, under the keys of this program.
        folder: Where it lies, which is below LLaMA-Factory's own as a rule.

    Raises:
        InvalidInput: The list names columns that are not read as it says.
    """
    place, name = document.get("dataset_dir", "data"), document.get("dataset")
    listings = (one / str(place) / _LISTING for one in (folder, *folder.parents))
    listing = next((one for one in listings if one.is_file()), None)
    try:
        entry = json.loads(listing.read_text(encoding="utf-8"))[name] if listing is not None else {}
        file = listing.parent / entry["file_name"] if listing is not None else None
    except (OSError, ValueError, LookupError, TypeError):
        file = None
    if file is None or not file.exists():
        return dict(document)
    columns = entry.get("columns") or {}
    if other := {ours: theirs for ours, theirs in columns.items() if theirs not in _READ_COLUMNS.get(ours, ())}:
        raise InvalidInput(
            f"dataset {shown(name)}: expected columns that are read by their own names, got {shown(other)} in {_LISTING}; export the "
            "file with `columns` (quintain export --rows), and name that dataset"
        )
    return {key: value for key, value in document.items() if key != "dataset_dir"} | {"dataset": str(file)}


def is_of_another_trainer(document: Mapping[str, Any]) -> bool:
    """Whether a file has keys of another trainer."""
    return any(name in RENAMED or name in _ELSEWHERE for name in document)


_DIFFERING = ("learning_rate", "batch_size", "warmup_ratio", "schedule", "max_length")
"""Settings on which trainers' defaults differ."""


def left_open(config: TrainingConfig, template: str | None) -> Iterator[Hint]:
    """Yield notes on what a file of another trainer does not state, and what it is here, and on a template that it names."""
    if template is not None:
        yield Hint(
            f"[template] the file names the template {shown(template)}, and rows are rendered by that of the model, or by a plain one "
            "where it has none; ",
            call("preview_dataset", dataset_id=..., model=...),
            " shows them, and register_agent takes another `template`",
        )
    given = config.model_fields_set | ({"warmup_ratio"} if config.warmup_steps is not None else set())
    values = {name: getattr(config, name) for name in _DIFFERING if name not in given}
    values |= {
        f"lora.{name}": getattr(config.lora, name)
        for name in ("rank", "alpha", "targets")
        if config.lora is not None and name not in config.lora.model_fields_set
    }
    if values:
        left = ", ".join(f"{name} {json.dumps(value)}" for name, value in values.items())
        yield Hint(f"[left_open] the file leaves these at the defaults here: {left}; ", "state those of its trainer")
