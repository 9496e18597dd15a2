"""Find near-duplicate runs and tasks with MinHash over word shingles.

The similarity of two texts is the Jaccard index of their sets of three-word shingles (Broder, "On the resemblance and
containment of documents", 1997), estimated from 128 hashes: its standard error is at most 0.045, and 0.027 at 0.9.
Texts are held as signatures of half a kilobyte, never as words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from quintain.datasets.selection import ExportCounts, ValuedRun
from quintain.records.trajectory import Trajectory, text_of

if TYPE_CHECKING:
    from datasketch import MinHash, MinHashLSH

KINDS = frozenset({"sft", "dpo", "reward", "kto", "prm"})
"""Dataset kinds that support dropping near-duplicates."""

_HASHES = 128
_SHINGLE = 3
_SURELY_BANDED = 0.95
"""Above this threshold the index would get a single band, which it rejects."""

# Chinese, Japanese and Korean are written without spaces between words: each character counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


class NearDuplicateIndex:
    """Index of texts; of similar texts only the oldest is kept."""

    def __init__(self, threshold: float) -> None:
        """Create an empty index.

        Args:
            threshold: Jaccard index from which on two texts are near-duplicates, 0.5..1.
        """
        # Loaded here: it brings numpy and scipy, which a server without such an export does not need.
        from datasketch import MinHash, MinHashLSH

        self._threshold = threshold
        self._empty = MinHash(num_perm=_HASHES)
        # Candidates are checked against the estimate below, so the bands may propose too many but shall miss few.
        proposed_from = min(threshold, _SURELY_BANDED)
        self._index: MinHashLSH = MinHashLSH(
            threshold=proposed_from, num_perm=_HASHES, weights=(0.1, 0.9), hashfunc=_short
        )
        self._kept: list[tuple[Any, Hashable]] = []

    def find(self, text: str, label: Hashable = None) -> int | None:
        """Return the number (from 0) of the oldest similar text with this label; else add the text and return None."""
        signature = self._signature(text)
        for number in sorted(self._index.query(signature)):
            hashes, other = self._kept[number]
            if other == label and float((hashes == signature.hashvalues).mean()) >= self._threshold:
                return int(number)
        self._index.insert(len(self._kept), signature)
        self._kept.append((signature.hashvalues.astype("uint32"), label))
        return None

    def _signature(self, text: str) -> MinHash:
        signature = self._empty.copy()
        signature.update_batch(list(shingles(text)))
        return signature


def drop_near_duplicates(
    runs: Iterable[ValuedRun], threshold: float, tally: ExportCounts, *, by_value: bool
) -> Iterator[ValuedRun]:
    """Stream the runs that are not similar to an older one, over all tasks; count the others.

    A run that is left out is not compared with later ones, so the runs that stay do not change when newer ones are added.

    Args:
        runs: Oldest first.
        threshold: As in `NearDuplicateIndex`.
        tally: Counts those that are left out as `near_duplicate`.
        by_value: Only runs of equal value are compared: where good and bad runs are contrasted, two that
            differ in one word and in their worth are the most telling ones.
    """
    texts = NearDuplicateIndex(threshold)
    for run in runs:
        if texts.find(agent_text(run.trajectory), run.value if by_value else None) is None:
            yield run
        else:
            tally.dropped["near_duplicate"] += 1


def agent_text(run: Trajectory) -> str:
    """Return the prompt and the agent's thoughts, messages and calls, without observations."""
    texts = [run.task.prompt]
    for step in run.agent_steps:
        texts += [step.thought or "", text_of(step.message)]
        for call in step.actions:
            args = call.raw_args if call.args is None else json.dumps(call.args, ensure_ascii=False, sort_keys=True)
            texts += [call.tool, args or ""]
    return "\n".join(texts)


def words(text: str) -> list[str]:
    """Return the words of a text, case folded and without punctuation."""
    return _WORD.findall(text.casefold())


def shingles(text: str) -> set[bytes]:
    """Return every sequence of three words; a shorter text is one shingle."""
    found = words(text)
    last = max(1, len(found) - _SHINGLE + 1)
    return {" ".join(found[i : i + _SHINGLE]).encode("utf-8") for i in range(last)}


def _short(band: bytes) -> bytes:
    return hashlib.blake2b(band, digest_size=8).digest()
