"""Models in folders and files: what is there, and the base model of an adapter. Of the weights only headers are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from importlib.resources import files
from pathlib import Path
from stat import S_ISREG
from typing import Any

from quintain.errors import InvalidInput, NotFound, Refused
from quintain.next_step import Hint, call
from quintain.records.agent import ModelRef, Role
from quintain.records.wording import clip, list_names, shown
from quintain.tools.roots import readable
from quintain.tools.services import Services
from quintain.tools.training.planning.gguf_header import require_loadable

HUB_NAME = re.compile(r"^[A-Za-z0-9][\w.-]{0,95}/[\w.-]{1,96}$")

_ADAPTER_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")

_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
"""Where transformers looks for the weights of a model: in one file, or in those that an index names."""

_MAX_CONFIG = 2 * 2**20
"""Bytes of a configuration."""

_MAX_HEADER = 32 * 2**20
"""Bytes; a model of 100,000 tensors has a header of about 12 MB."""

_ABOVE = 3
"""Folders above an adapter at which the path of its base may begin."""

_LISTED = 8
"""Models that a message lists."""

_LOOKED_AT = 500
"""Entries of a folder that are looked at for a message."""

_INBOX = "the inbox (the folder `inbox` in Quintain's home folder)"
_SERVED = "A model that Ollama, vLLM or a vendor serves is endpoint:NAME, by a profile in endpoints.toml"


def starter_folder() -> Path:
    """Return the folder of the embedded model."""
    return Path(str(files("quintain") / "starter"))


def model_in(services: Services, path: Path, reference: str) -> ModelRef:
    """Return the model at a path: a folder with safetensors, an adapter with its base model, or a GGUF file.

    Raises:
        NotFound: there is no model, or the base of an adapter is not here.
        InvalidInput: an adapter without weights, a GGUF file that no job can load, or one of several is meant; or the folder has a
            pipe or a device.
        Refused: a link in the folder leads out of the allowed roots.
    """
    for file in path.rglob("*") if is_model(path) and path.is_dir() else ():
        if file.is_symlink():
            readable(services, file, "model")
        if file.exists() and not file.is_file() and not file.is_dir():
            raise InvalidInput(
                f"expected files and folders alone in {clip(reference)!r}, got {clip(file.name)!r}, a pipe, socket or device, on which a "
                "job would wait for ever; remove it",
                code="model_damaged",
            )
    if path.is_file() and path.suffix == ".gguf":
        return _gguf(path)
    if (path / "adapter_config.json").is_file():
        _require_no_model_beside(path, reference)
        base = _base_of(services, path, reference)
        return base.model_copy(update={"adapter": str(path)})
    ggufs = sorted(path.glob("*.gguf")) if path.is_dir() else []
    if (path / "config.json").is_file() and (not ggufs or any(path.glob("*.safetensors"))):
        return ModelRef(source="folder", path=str(path))
    if len(ggufs) == 1:
        return _gguf(ggufs[0])
    if ggufs:
        names = list_names([clip(file.name) for file in ggufs], _LISTED)
        raise InvalidInput(
            f"{clip(reference)!r} contains {len(ggufs)} GGUF files ({names}); name one of them",
            code="model_ambiguous",
        )
    raise _no_model(path, reference)


def _gguf(path: Path) -> ModelRef:
    require_loadable(path)
    return ModelRef(source="gguf", path=str(path))


def _require_no_model_beside(path: Path, reference: str) -> None:
    """Refuse a folder into which a whole model and an adapter were written, since either may be meant."""
    whole = sorted(file.name for file in path.glob("model*.safetensors"))
    if whole and (path / "config.json").is_file():
        raise InvalidInput(
            f"{clip(reference)!r} contains an adapter and a whole model ({whole[0]}), written one after the other; copy the files of "
            "the one that you mean into a separate folder",
            code="model_ambiguous",
        )


def _no_model(path: Path, reference: str) -> NotFound:
    what = f"{clip(reference)!r} contains no model (no config.json, adapter_config.json or *.gguf)"
    if not path.exists():
        what = f"there is no folder or file {clip(reference)!r}"
    inner = list_names([clip(str(found.relative_to(path))) for found in _models_below(path)], _LISTED)
    return NotFound(
        Hint(
            f"{what}{f', but models in it: {inner}' if inner else ''}; name the folder that `save_pretrained` wrote, a "
            "GGUF file, an agent of ",
            call("list_library", kind="agents"),
            ", or 'starter'",
        ),
        code="model_not_found",
    )


def _models_below(folder: Path) -> list[Path]:
    """Return the models in a folder and in its folders."""
    found: list[Path] = []
    for entry in _entries(folder):
        found += [entry] if is_model(entry) else [inner for inner in _entries(entry) if is_model(inner)]
    return found


def _entries(folder: Path) -> Iterator[Path]:
    try:
        children = sorted(folder.iterdir())[:_LOOKED_AT] if folder.is_dir() else []
    except OSError:  # a folder that may not be read
        return
    yield from (child for child in children if not child.name.startswith("."))


def is_model(path: Path) -> bool:
    """Whether a path looks like a model: a folder with a configuration, or a GGUF file."""
    if path.suffix == ".gguf":
        return path.is_file()
    return any((path / name).is_file() for name in ("config.json", "adapter_config.json"))


def near_models(services: Services, reference: str) -> str:
    """Return a sentence with the models of the inbox that are most like a name, and where the inbox is."""
    inbox = services.settings.inbox_dir
    names = [str(found.relative_to(inbox)) for found in _models_below(inbox)]
    if not names:
        return f"Model folders and GGUF files in {_INBOX} can be named as they are called there; it has none yet. {_SERVED}"

    def likeness(name: str) -> float:
        return SequenceMatcher(None, reference.lower(), name.lower()).ratio()

    alike = map(clip, sorted(names, key=likeness, reverse=True))
    return f"In {_INBOX} are: {list_names(list(alike), _LISTED)}. {_SERVED}"


def _base_of(services: Services, folder: Path, reference: str) -> ModelRef:
    """Return the base model of an adapter, by the name in its configuration."""
    if not any((folder / name).is_file() for name in _ADAPTER_WEIGHTS):
        raise InvalidInput(
            f"expected {' or '.join(_ADAPTER_WEIGHTS)} beside adapter_config.json in {clip(reference)!r}, got neither; copy the "
            "whole folder of the adapter",
            code="model_incomplete",
        )
    config = _adapter_config(folder, reference)
    if (kind := config.get("peft_type", "LORA")) != "LORA":
        raise InvalidInput(
            f"expected a LoRA adapter in {clip(reference)!r}, got {shown(kind)}; merge it into its base model with peft, and name "
            "that folder",
            code="adapter_unsupported",
        )
    if config.get("lora_bias"):
        raise InvalidInput(
            f"expected a LoRA adapter without biases in {clip(reference)!r}, got lora_bias=true, which most bases have no place "
            "for; train it again without",
            code="adapter_unsupported",
        )
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(name, str) or not name.strip() or len(name) > 1000 or "\0" in name:
        raise InvalidInput(
            f"expected the base model's folder or Hub name as base_model_name_or_path in {clip(reference)!r}/adapter_config.json, "
            f"got {shown(name)}; write it there",
            code="model_incomplete",
        )
    if Path(name).parts[-2:] == ("quintain", "starter"):  # of this installation, or of another one
        return ModelRef(source="starter", path=str(starter_folder()))
    for path in _places(services, folder, name):
        if (path.is_file() and path.suffix == ".gguf") or (path / "config.json").is_file() or any(path.glob("*.gguf")):
            return model_in(services, path, str(path))
    if cached := cached_snapshot(name, revision if isinstance(revision, str) else None):
        return ModelRef(source="folder", path=str(cached))
    if HUB_NAME.match(name) and services.settings.allow_hub:
        return ModelRef(source="hub", path=name, revision=revision if isinstance(revision, str) else None)
    remedy = f"copy the model's folder, or that of its unquantised weights, into {_INBOX} as {_own_name(name)!r}"
    if HUB_NAME.match(name):
        remedy += f", download {name} into the Hub cache, or let the operator set QUINTAIN_ALLOW_HUB=1"
    raise NotFound(
        f"the adapter {clip(reference)!r} needs its base model {clip(name)!r}, which is not on this machine, or not where models "
        f"may be read; {remedy}",
        code="base_not_found",
    )


def _adapter_config(folder: Path, reference: str) -> dict[str, Any]:
    try:
        return read_object(folder / "adapter_config.json")
    except (OSError, ValueError, TypeError, RecursionError):
        raise InvalidInput(
            f"cannot read {clip(reference)!r}/adapter_config.json; copy the adapter's folder again from the original",
            code="model_damaged",
        ) from None


def read_object(path: Path, most: int = _MAX_CONFIG) -> dict[str, Any]:
    """Return the JSON object in a file of at most so many bytes.

    Raises:
        OSError, ValueError, TypeError, RecursionError: There is none.
    """
    if not path.is_file() or path.stat().st_size > most:  # a pipe would block
        raise ValueError("no regular file, or too long")
    return _object(path.read_bytes())


def read_header(path: Path) -> dict[str, Any]:
    """Return the header of a safetensors file: its length in 8 bytes, little-endian, and JSON.

    Raises:
        OSError, ValueError, TypeError, LookupError, RecursionError: There is none, or the file ends before its tensors do.
    """
    if not S_ISREG(path.stat().st_mode):  # a pipe would block
        raise ValueError("no regular file")
    with path.open("rb") as file:
        length, size = int.from_bytes(file.read(8), "little"), path.stat().st_size
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise ValueError("a header of impossible length")
        header = _object(file.read(length))
    end = (
        8
        + length
        + max((about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"), default=0)
    )
    if end > size:
        raise ValueError(f"the file is cut: expected {end:,} bytes, as its header states, got {size:,}")
    return header


def weight_headers(folder: Path) -> list[dict[str, Any]]:
    """Return the headers of the files with a model's weights.

    Raises:
        InvalidInput: A file is missing, cut or damaged (`model_damaged`).
    """
    name = _WEIGHTS if (folder / _WEIGHTS).exists() or not (folder / _INDEX).exists() else _INDEX
    names, headers = [name], []
    try:
        if name == _INDEX:
            names = sorted(
                {Path(file).name for file in read_object(folder / _INDEX, _MAX_HEADER)["weight_map"].values()}
            )
        for name in names:
            headers.append(read_header(folder / name))
        return headers
    except FileNotFoundError:
        problem = f"expected {name} in the folder {folder.name!r}, got none"
        if names == [_WEIGHTS]:
            raise _no_weights(folder) from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{name} in the folder {folder.name!r} cannot be read ({error})"
    raise InvalidInput(f"{problem}; copy the model again, or save it with safetensors", code="model_damaged")


def _no_weights(folder: Path) -> InvalidInput:
    """Return the error of a folder without `model.safetensors` and index, by what it has instead."""
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    pickles = sorted(path.name for path in folder.glob("*.bin"))
    remedy = "copy the model again, with its weights"
    if others:
        remedy = f"call the file with all weights {_WEIGHTS}, or copy the index of its parts"
    elif pickles:
        both = f"M.from_pretrained({folder.name!r}).save_pretrained({folder.name!r})"
        remedy = f'convert it beside its folder: python -c "from transformers import AutoModelForCausalLM as M; {both}"'
    got = clip((others or pickles or ["none"])[0])
    reason = ", which can contain code and is not read" if pickles and not others else ""
    problem = f"expected {_WEIGHTS} or {_INDEX} in the folder {folder.name!r}, got {got}{reason}"
    return InvalidInput(f"{problem}; {remedy}", code="model_damaged")


def _object(text: bytes) -> dict[str, Any]:
    read = json.loads(text)
    if not isinstance(read, dict):
        raise TypeError("no object")
    return read


def _places(services: Services, folder: Path, name: str) -> Iterator[Path]:
    """Yield the readable paths at which the base of the adapter in a folder may lie.

    A relative path begins at the working folder of the training, which usually lies above the folder that it wrote.
    """
    inbox = services.settings.inbox_dir
    above = [start / name for start in (folder, *folder.parents[:_ABOVE])]
    places: list[str | Path] = [name, *above, inbox / name, inbox / _own_name(name)]
    for place in places:
        try:
            yield readable(services, place, "model")
        except (InvalidInput, NotFound, Refused):
            continue


def _own_name(name: str) -> str:
    """Return the last part of a path or Hub name, also of another operating system."""
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1]


def cached_snapshot(name: str, revision: str | None) -> Path | None:
    """Return the folder of a Hub model in the cache of this machine; None if it is not complete there."""
    if not HUB_NAME.match(name):
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:
        return None
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and any(folder.glob("*.safetensors")) else None


def role_in(folder: Path) -> Role:
    """Return the role of a model folder: `retriever` beside files of sentence-transformers, else that of its value head."""
    if (folder / "modules.json").is_file():
        return "retriever"
    if not (folder / "value_head.safetensors").is_file():
        return "policy"
    try:
        role = read_header(folder / "value_head.safetensors")["__metadata__"]["role"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        role = None
    if role == "policy":  # a value head of PPO, whose model acts
        return "policy"
    if role not in {"reward_model", "step_model"}:
        raise InvalidInput(
            f"{folder.name}/value_head.safetensors is damaged: expected the role in its metadata; copy the folder again",
            code="model_damaged",
        )
    return "reward_model" if role == "reward_model" else "step_model"
