"""Copies of GGUF models as folders with safetensors, configuration and tokenizer, in the home's cache.

Dequantising a model and building its tokenizer again takes half a minute for a vocabulary of 262,000 tokens; the copy loads in
seconds. A copy is only a cache: it can be deleted at any time, and agents and adapters name the GGUF file.

Every worker imports this module, also for a job without a model: it imports torch and transformers only where it uses them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

MANIFEST = "copy.json"
"""File of a copy with the sizes of its other files, in bytes."""

_FORMAT = 2
_LIBRARIES = ("gguf", "transformers")
"""Versions of the readers of GGUF files: another version reads them again."""

_SAMPLES, _SAMPLE_BYTES = 64, 2**16
"""Blocks of a file that are hashed, spread evenly from its first bytes to its last."""

_GROWTH = 8
"""Most bytes of a copy for each byte of the file: float32 for weights of four bits."""

_KEPT = 4
"""Copies that stay: those used last."""

_PROVENANCE = frozenset({"_name_or_path", "transformers_version"})
"""Entries of a configuration that change nothing of the model."""

_folder: Path | None = None


class UnfaithfulCopy(OSError):
    """A copy would not load as the model of its file, so that none is kept."""


def keep_copies(folder: Path | None) -> None:
    """Set the folder in which this process finds and keeps copies; None, as at the start: it neither finds nor keeps any."""
    global _folder
    _folder = folder


@contextmanager
def open_copy(file: Path, convert: Callable[[Path], None] | None = None) -> Iterator[Path | None]:
    """Yield the folder with the copy of a GGUF file, which no process deletes meanwhile; None where there is none.

    Where several processes need the same copy, one writes it and the others wait.

    Args:
        file: The GGUF file.
        convert: Writes the copy to a folder, whole or not at all; after OSError a later process tries again, but not after
            `UnfaithfulCopy`. None: a missing copy stays missing.
    """
    with ExitStack() as locks:
        copy = None
        if _folder is not None:
            try:
                copy = _find(_folder, file, convert, locks)
            except OSError as error:
                logger.warning("No converted copy of %s in %s: %s", file.name, _folder, error)
        yield copy


def _find(folder: Path, file: Path, convert: Callable[[Path], None] | None, locks: ExitStack) -> Path | None:
    key = _key(file)
    copy = folder / key
    if convert is None and not copy.is_dir():
        return None
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = _open_lock(copy)
    locks.callback(os.close, lock)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if convert is not None and not _is_whole(copy):
        fcntl.flock(
            lock, fcntl.LOCK_EX
        )  # releases the shared lock first, so another process may convert before this one
        if not _is_whole(copy):
            _require_room(folder, file)
            if reason := os.pread(lock, 200, 0):
                raise OSError(reason.decode())
            logger.info("Converting %s to %s", file.name, copy)
            try:
                convert(copy)
            except UnfaithfulCopy as error:
                os.pwrite(lock, str(error).encode()[:200], 0)  # the next process need not try
                raise
        fcntl.flock(lock, fcntl.LOCK_SH)
        _delete_oldest(folder, copy)
    if not _is_whole(copy):
        return None
    os.utime(copy)
    return copy


def write_manifest(folder: Path) -> None:
    """Complete a copy: note the sizes of its files."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    sizes = {str(path.relative_to(folder)): path.stat().st_size for path in files}
    (folder / MANIFEST).write_text(json.dumps(sizes, indent=1), encoding="utf-8")


def _is_whole(copy: Path) -> bool:
    """Whether a copy has all its files: someone may have deleted some."""
    try:
        sizes = json.loads((copy / MANIFEST).read_bytes())
        return all((copy / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _key(file: Path) -> str:
    """Return a hash of a file's size, time, and content at 64 places, and of the versions of the libraries that read it."""
    about = file.stat()
    digest = hashlib.sha256(
        json.dumps([_FORMAT, about.st_size, about.st_mtime_ns, *map(_version, _LIBRARIES)]).encode()
    )
    last = max(0, about.st_size - _SAMPLE_BYTES)
    with file.open("rb") as content:
        for i in range(_SAMPLES):
            content.seek(last * i // (_SAMPLES - 1))
            digest.update(content.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:32]


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


def _require_room(folder: Path, file: Path) -> None:
    needed, free = _GROWTH * file.stat().st_size, shutil.disk_usage(folder).free
    if needed > free // 2:
        raise OSError(
            f"it may take {needed / 2**20:,.0f} MiB, more than half of the {free / 2**20:,.0f} MiB that are free"
        )


def _open_lock(copy: Path) -> int:
    return os.open(copy.with_name(f"{copy.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)


def _delete_oldest(folder: Path, newest: Path) -> None:
    """Delete all but the copies used last, unless a process is loading them."""
    with suppress(FileNotFoundError):  # another process deletes too
        copies = [
            path for path in folder.iterdir() if path.is_dir() and path != newest and not path.name.startswith(".")
        ]
        copies.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for copy in copies[_KEPT - 1 :]:
            lock = _open_lock(copy)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(copy, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(lock)


_OUTPUT_BIAS = ".self_attn.o_proj.bias"


def with_stored_attention(config: Any, path: Path) -> Any:
    """Set the biases, the rotary scaling and Qwen 3's head size of a file, for which transformers takes defaults.

    Raises:
        InvalidInput: The file has a rotary scaling that transformers does not have (`unsupported_model`).
    """
    from gguf import GGUFReader

    from quintain.trainers.models.gguf_rotary import with_stored_rotary

    reader = GGUFReader(path)
    size = reader.fields.get("qwen3.attention.key_length")
    if size is not None:
        config.head_dim = size.contents()
    if getattr(config, "attention_bias", None) is False:
        config.attention_bias = any(tensor.name == "blk.0.attn_q.bias" for tensor in reader.tensors)
    return with_stored_rotary(config, reader) if getattr(config, "rope_parameters", None) else config


def fill_output_biases(model: Any, missing: Iterable[str]) -> list[str]:
    """Set the missing biases of attention's output to 0, what a file without them means; return the other missing weights."""
    from torch.nn.init import zeros_

    parameters = dict(model.named_parameters())
    others = []
    for name in missing:
        if name.endswith(_OUTPUT_BIAS):
            zeros_(parameters[name])
        else:
            others.append(name)
    return others


def fingerprint(model: Any) -> dict[str, str]:
    """Return hashes of all that a model computes with, by name."""
    import torch

    tensors = dict((*model.named_parameters(), *model.named_buffers()))
    facts = {name: tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data for name, tensor in tensors.items()}
    config, generation = model.config.to_dict(), model.generation_config
    about = {
        "configuration": {name: value for name, value in config.items() if name not in _PROVENANCE},
        "generation configuration": generation and {**generation.to_dict(), "transformers_version": None},
    }
    facts |= {name: json.dumps(value, sort_keys=True, default=str).encode() for name, value in about.items()}
    return {name: hashlib.blake2b(content).hexdigest() for name, content in facts.items()}
