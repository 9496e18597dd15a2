"""The files of a base model: a folder, a GGUF file, or a download of the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

import quintain
from quintain.errors import InvalidInput, NotFound, Unavailable
from quintain.records.agent import ModelRef

_HUB_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""Files to download of a Hub model: weights, configuration and tokenizer; no pickles, no code."""


class ModelFiles(NamedTuple):
    """The files of a base model on this machine."""

    folder: Path
    gguf: str | None = None
    """Name of the GGUF file in the folder, which has weights, configuration and tokenizer; None: safetensors."""
    tokenizer: Path | None = None
    """Folder of the tokenizer; None: the same."""

    @property
    def path(self) -> Path:
        """The GGUF file, or the folder."""
        return self.folder / self.gguf if self.gguf else self.folder

    @property
    def config_name(self) -> str:
        """Name of the file with the configuration."""
        return self.gguf or "config.json"

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `from_pretrained`, beside the folder."""
        return {"gguf_file": self.gguf} if self.gguf else {}


def model_files(ref: ModelRef) -> ModelFiles:
    """Return the files of a base model; a Hub model is downloaded first, if necessary.

    Raises:
        NotFound: The folder, file or Hub model does not exist.
        InvalidInput: The folder has no model, or no safetensors.
    """
    if ref.source == "hub":
        return ModelFiles(_hub_folder(ref))
    if ref.source == "gguf":
        file = Path(ref.path)
        if not file.is_file():
            raise NotFound(f"no GGUF file at {file}; name the file again, or copy it there")
        return ModelFiles(file.parent, file.name)
    return ModelFiles(_local_folder(ref))


def _local_folder(ref: ModelRef) -> Path:
    # `/` keeps an absolute path as it is: only the starter's is relative to the package.
    folder = Path(quintain.__file__).parent / ref.path if ref.source == "starter" else Path(ref.path)
    if not folder.is_dir():
        raise NotFound(f"no model folder at {folder}; name the folder with config.json and *.safetensors")
    if not (folder / "config.json").is_file():
        raise InvalidInput(
            f"expected config.json in the model folder {folder}, got none; name the folder with config.json and *.safetensors",
            code="model_incomplete",
        )
    if not any(folder.glob("*.safetensors")):
        raise InvalidInput(
            f"expected *.safetensors in {folder}, got none; other formats can run code and are not read: save the model as "
            "safetensors",
            code="model_incomplete",
        )
    return folder


def _hub_folder(ref: ModelRef) -> Path:
    """Return the local copy of a Hub model; download it if the cache has none."""
    options: dict[str, Any] = {"revision": ref.revision, "allow_patterns": list(_HUB_FILES)}
    try:
        return Path(snapshot_download(ref.path, local_files_only=True, **options))
    except HFValidationError as error:
        raise InvalidInput(f"expected a Hub name such as 'Qwen/Qwen3-0.6B', got {ref.path!r}: {error}") from None
    except LocalEntryNotFoundError:
        pass
    try:
        return Path(snapshot_download(ref.path, **options))
    except LocalEntryNotFoundError:
        raise Unavailable(
            f"the model {ref.path!r} is not on this machine and the Hub cannot be reached; connect, or download it "
            "elsewhere and name its folder",
            code="hub_unreachable",
        ) from None
    except (HfHubHTTPError, OSError) as error:
        raise NotFound(
            f"cannot download the model {ref.path!r} from the Hub: {error}; check name, revision and access"
        ) from None
