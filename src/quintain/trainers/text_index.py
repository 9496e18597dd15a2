"""Indexes of embedded texts: exact up to 100,000, above that approximate by faiss."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quintain.errors import Unavailable

Vectors = NDArray[np.float32]

EXACT_LIMIT = 100_000
"""Texts up to which every cosine is computed: 100,000 of width 768 are 300 MB and some 20 ms a search."""

_LINKS, _BUILD, _SEARCH = 32, 200, 128
"""Neighbours a node, and candidates while building and searching, of the graph (HNSW; Malkov and Yashunin 2018, arXiv 1603.09320)."""


class VectorIndex(Protocol):
    """Finds the nearest of some unit vectors."""

    def nearest(self, vector: Vectors, k: int) -> list[int]:
        """Return the numbers of the `k` vectors with the highest cosine to a unit vector [h], best first."""


class ExactIndex:
    """`VectorIndex` by all products; equal cosines keep the order of the vectors."""

    def __init__(self, vectors: Vectors) -> None:
        """Keep unit vectors, float32 [n, h]."""
        self._vectors = vectors

    def nearest(self, vector: Vectors, k: int) -> list[int]:
        """Return the nearest, as in `VectorIndex`."""
        cosines = self._vectors @ vector
        if k < len(cosines):
            bound = np.partition(cosines, -k)[-k]
            among = np.flatnonzero(cosines >= bound)
        else:
            among = np.arange(len(cosines))
        order = np.argsort(-cosines[among], kind="stable")[:k]
        return [int(i) for i in among[order]]


class GraphIndex:
    """`VectorIndex` by a graph of neighbours (HNSW) of faiss; approximate."""

    def __init__(self, vectors: Vectors) -> None:
        """Build the graph of unit vectors, float32 [n, h]."""
        faiss: Any = import_module("faiss")
        self._graph = faiss.IndexHNSWFlat(vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._graph.hnsw.efConstruction = _BUILD
        self._graph.add(vectors)

    def nearest(self, vector: Vectors, k: int) -> list[int]:
        """Return the nearest, as in `VectorIndex`."""
        self._graph.hnsw.efSearch = max(_SEARCH, 2 * k)
        _, places = self._graph.search(vector[None], k)
        return [int(place) for place in places[0] if place >= 0]


def require_index(n: int) -> None:
    """Refuse an index of `n` texts that cannot be built here.

    Raises:
        Unavailable: It is beyond `EXACT_LIMIT`, and faiss is not installed (`missing_extra`).
    """
    if n > EXACT_LIMIT and find_spec("faiss") is None:
        raise Unavailable(
            f"expected at most {EXACT_LIMIT:,} texts for exact search, or the package faiss, got {n:,} texts and no faiss; pip install "
            "'quintain[retrieval]', or index fewer texts",
            code="missing_extra",
        )


def index_of(vectors: Vectors) -> VectorIndex:
    """Return the index for unit vectors, float32 [n, h].

    Raises:
        Unavailable: as `require_index`.
    """
    require_index(len(vectors))
    return ExactIndex(vectors) if len(vectors) <= EXACT_LIMIT else GraphIndex(np.ascontiguousarray(vectors))
