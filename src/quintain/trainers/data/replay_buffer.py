"""A replay buffer: examples of earlier jobs, mixed into later ones against forgetting.

It is a folder with one file, `examples.npz`, and its lock. The kept examples are a bottom-k sample (Cohen and Kaplan 2007, PODC):
each key is hashed to a number, and the `size` smallest are kept. So the buffer is a uniform sample of all distinct examples that
were ever added, in any order, by concurrent jobs, or twice by a resumed job. Enlarging it does not restore dropped examples.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from quintain.errors import Conflict, InvalidInput, Unavailable
from quintain.trainers.data.example_files import read_examples, write_examples
from quintain.trainers.data.streams import Example

_FILE_NAME = "examples.npz"
_LOCK_TIMEOUT_S = 60.0


class ReplayBuffer:
    """Examples of earlier jobs, as of `ReplayBuffer.open` or the latest `add`."""

    def __init__(self, folder: Path, size: int, fingerprint: str) -> None:
        self.folder, self.size, self.fingerprint = folder, size, fingerprint
        self.warning: str | None = None
        """Why the file could not be read, if the buffer starts empty because of that."""
        self._examples: dict[str, Example] = {}

    @staticmethod
    def open(folder: Path, size: int, fingerprint: str) -> ReplayBuffer:
        """Open the buffer of a folder, which need not exist yet and which several jobs may share, to keep `size` examples.

        Raises:
            Conflict: The buffer has examples of another tokenizer or template.
            Unavailable: The folder cannot be used, or a newer version of this program wrote it.
        """
        buffer = ReplayBuffer(folder, size, fingerprint)
        with buffer._locked():
            buffer._read()
        return buffer

    def __len__(self) -> int:
        return len(self._examples)

    def sample(self, n: int, *, exclude: Collection[str], seed: int) -> list[Example]:
        """Draw up to `n` examples with other keys than those of the new data; the same seed and content give the same ones."""
        free = sorted(self._examples.keys() - set(exclude))
        return [self._examples[key] for key in random.Random(f"replay/{seed}").sample(free, min(n, len(free)))]

    def add(self, examples: Sequence[Example]) -> int:
        """Offer examples, each with a key, to the buffer and write it; an example replaces one with the same key.

        Returns:
            Number of examples in the buffer.

        Raises:
            Conflict: Another job has written examples of another tokenizer meanwhile.
            Unavailable: The folder cannot be written.
        """
        with self._locked():
            self._read()
            offered = self._examples | {example.key: example for example in examples}
            kept = sorted(offered, key=_priority)[: self.size]
            self._examples = {key: offered[key] for key in kept}
            write_examples(self.folder / _FILE_NAME, list(self._examples.values()), self.fingerprint)
        return len(self)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / "lock", timeout=_LOCK_TIMEOUT_S):
                yield
        except Timeout:
            raise Unavailable(
                f"another job has locked the replay buffer in {self.folder} for {_LOCK_TIMEOUT_S:.0f} s; try again"
            ) from None
        except OSError as error:
            raise Unavailable(
                f"cannot use the replay buffer in {self.folder}: {error}; free disk space or correct its permissions"
            ) from error

    def _read(self) -> None:
        path = self.folder / _FILE_NAME
        self._examples = {}
        try:
            stored = read_examples(path)
        except FileNotFoundError:
            return
        except InvalidInput as error:
            self.warning = f"{error.message}; the replay buffer starts empty"
            return
        if stored.fingerprint != self.fingerprint and stored.examples:
            raise Conflict(
                f"expected tokens of {self.fingerprint} in the replay buffer in {self.folder}, got {stored.fingerprint}; name "
                "another buffer, or delete that folder"
            )
        kept = sorted(stored.examples, key=lambda example: _priority(example.key))[: self.size]
        self._examples = {example.key: example for example in kept}


def _priority(key: str) -> bytes:
    """Return a pseudo-random number for the key, the same in every job."""
    return hashlib.sha256(f"replay/{key}".encode()).digest()
