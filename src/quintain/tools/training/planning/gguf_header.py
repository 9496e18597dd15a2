"""The header of a GGUF file: sizes of the model, and whether a job can load it, without reading its weights.

Source of the format: ggml's `docs/gguf.md`, versions 2 and 3. Everything in the file may be damaged or hostile, so the header is
bounded.
"""

from __future__ import annotations

import math
import mmap
import struct
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from quintain.errors import InvalidInput, NotFound

_MAX_HEADER = 32 * 2**20
"""Bytes; a vocabulary of 262,000 tokens has a header of about 6 MB."""

_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Type of a value -> its form in `struct`; beside them are strings and arrays."""
_STRING, _ARRAY = 8, 9

_NAMES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

ARCHITECTURES = frozenset(_NAMES["architectures"])
"""Architectures of causal language models that transformers reads from GGUF, by the names in the files."""

VOCABULARIES = frozenset(_NAMES["vocabularies"])
"""Kinds of tokenizers that transformers reads from GGUF (`tokenizer.ggml.model`)."""


class Fault(NamedTuple):
    """Why no job can load a file."""

    code: str
    message: str
    """With the remedy."""


class GgufHeader(NamedTuple):
    """Facts that a header states about its model."""

    settings: dict[str, Any]
    """As in `config.json`."""
    tensors: list[tuple[str, tuple[int, ...]]]
    """Names in transformers, and shapes."""
    fault: Fault | None
    """None if a job can load the file, as far as its header shows."""


def read_gguf(path: Path) -> GgufHeader:
    """Read the header of a GGUF file; it is read again only after the file has changed.

    Raises:
        OSError, ValueError, LookupError: The file is damaged or of another format.
    """
    about = path.stat()
    return _read(path, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=16)
def _read(path: Path, size: int, _mtime_ns: int) -> GgufHeader:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _Reader(data)
        try:
            if reader.take(4) != b"GGUF" or reader.number("<I") not in (2, 3):
                raise ValueError("it is not in GGUF version 2 or 3")
            n_tensors, n_values = reader.number("<Q"), reader.number("<Q")
            values = {reader.string(): reader.value(reader.number("<I")) for _ in range(n_values)}
            tensors = [reader.tensor() for _ in range(n_tensors)]
        except struct.error as error:
            raise ValueError(f"the header ends too early ({error})") from None
    if (n_parts := values.get("split.count")) not in (None, 0, 1):
        raise ValueError(f"it is one of {str(n_parts)[:20]} parts: join them with `llama-gguf-split --merge`")
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    settings = _settings(values, shapes)
    end = _end(reader.at, values, tensors)
    fault = None
    if end > size:
        cut = (
            f"expected {end:,} bytes in {path.name}, as its header states, got {size:,}: the file is cut; copy it again"
        )
        fault = Fault("model_damaged", cut)
    fault = fault or _unsupported(path.name, values) or _without_vocabulary(path.name, values, settings["vocab_size"])
    return GgufHeader(settings, list(shapes.items()), fault)


def require_loadable(path: Path) -> None:
    """Refuse a GGUF file that no job can load, as far as its header shows.

    Raises:
        NotFound: There is no such file.
        InvalidInput: It is damaged or cut (`model_damaged`), of an architecture or with a tokenizer that transformers does not
            read (`unsupported_model`), or without a whole tokenizer (`model_incomplete`).
    """
    try:
        fault = read_gguf(path).fault
    except FileNotFoundError:
        raise NotFound(
            f"expected a GGUF file at {path}, got none; copy it there again, or name another one",
            code="model_not_found",
        ) from None
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError) as error:
        reason = f"expected a GGUF file in {path.name}, got one whose header cannot be read ({error}); copy it again"
        fault = Fault("model_damaged", reason)
    if fault is not None:
        raise InvalidInput(fault.message, code=fault.code)


def _end(header: int, values: Mapping[str, Any], tensors: list[_Tensor]) -> int:
    """Return the bytes of a whole file; tensors of a type that `gguf` does not know count as empty."""
    from gguf.constants import GGML_QUANT_SIZES  # loads numpy, without which the server starts

    blocks: dict[int, tuple[int, int]] = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    alignment = values.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 2**20:
        raise ValueError("impossible alignment")
    begin, ends = -(-header // alignment) * alignment, [header]
    for tensor in tensors:
        numbers, n_bytes = blocks.get(tensor.kind, (1, 0))
        ends.append(begin + tensor.offset + math.prod(tensor.shape) // numbers * n_bytes)
    return max(ends)


def _unsupported(name: str, values: Mapping[str, Any]) -> Fault | None:
    stated = {
        "an architecture": (values["general.architecture"], ARCHITECTURES),
        "a tokenizer": (values.get("tokenizer.ggml.model"), VOCABULARIES),
    }
    for what, (found, known) in stated.items():
        if found is not None and found not in known and not is_newer_than(_NAMES["listed_for"]):
            return Fault(
                "unsupported_model",
                f"expected {what} in {name} that transformers reads from GGUF ({', '.join(sorted(known))}), got {str(found)[:40]!r}; "
                "name the model's folder with safetensors",
            )
    return None


def is_newer_than(listed: Sequence[int]) -> bool:
    """Whether transformers is newer than the version of a list of what it reads."""
    try:
        return tuple(int(part) for part in version("transformers").split(".")[:2]) > tuple(listed)
    except (PackageNotFoundError, ValueError):
        return True


def _without_vocabulary(name: str, values: Mapping[str, Any], rows: int) -> Fault | None:
    tokens = values.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, _Strings) or "tokenizer.ggml.model" not in values:
        fault = f"expected a tokenizer in {name}, got none"
    elif not {"tokenizer.ggml.merges", "tokenizer.ggml.scores"} & values.keys():
        fault = f"expected merges or scores of the tokenizer in {name}, got neither"
    elif tokens.length > rows:
        fault = f"expected at most {rows:,} tokens in {name}, the model's embeddings, got {tokens.length:,}"
    else:
        return None
    return Fault("model_incomplete", f"{fault}; convert the model again, with its own tokenizer files")


def _settings(values: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    family = values["general.architecture"]
    settings = {name: _largest(values.get(f"{family}.{own}")) for name, own in _NAMES["settings"].items()}
    return {**settings, "vocab_size": shapes["embed_tokens.weight"][0]}


def _largest(value: Any) -> Any:
    """Return a setting, or the largest of a list with a value for each layer."""
    return max(value, default=None) if isinstance(value, list) else value


class _Strings(NamedTuple):
    """An array of strings, which are not kept."""

    length: int


class _Tensor(NamedTuple):
    """A tensor in the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    """Type of its numbers in ggml."""
    offset: int
    """Of its first byte from the end of the header, rounded up to the alignment."""


class _Reader:
    """The values of a header, one after the other."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self.at = data, 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > min(_MAX_HEADER, len(self._data)):
            raise ValueError("a header of impossible length")
        self.at, begin = end, self.at
        return self._data[begin:end]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def string(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        """Return the next value; of an array only numbers of up to a thousand entries, since vocabularies are not needed, else None."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(_FORMATS[kind])
        of, length = self.number("<I"), self.number("<Q")
        if of == _STRING:
            for _ in range(length):
                self.take(self.number("<Q"))
            return _Strings(length)
        entries = self.take(length * struct.calcsize(_FORMATS[of]))
        return [entry for (entry,) in struct.iter_unpack(_FORMATS[of], entries)] if length <= 1000 else None

    def tensor(self) -> _Tensor:
        name, n_dimensions = self.string(), self.number("<I")
        shape = tuple(self.number("<Q") for _ in range(min(n_dimensions, 5)))
        return _Tensor(_name(name), shape[::-1], self.number("<I"), self.number("<Q"))


def _name(name: str) -> str:
    """Return the name of a tensor in transformers: `blk.0.attn_q.weight` is `layers.0.q_proj.weight`."""
    *before, module, kind = name.split(".") if "." in name else ("", name, "weight")
    return ".".join(
        (*("layers" if part == "blk" else part for part in before), _NAMES["modules"].get(module, module), kind)
    )
