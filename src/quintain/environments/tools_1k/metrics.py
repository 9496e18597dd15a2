"""Retrieval metrics of a ranking, in 0..1, higher is better."""

from __future__ import annotations

from collections.abc import Sequence

KS = (1, 5, 10)
"""Depths of the metrics."""


def ranking_metrics(ranking: Sequence[str], relevant: frozenset[str], ks: Sequence[int] = KS) -> dict[str, float]:
    """Return the metrics of one ranking.

    `top_k_accuracy@k`: 1 if a relevant name is among the first k; `recall@k`: share of the relevant names among the first k;
    `precision@k`: relevant names among the first k, divided by k; `mrr`: 1 / rank of the first relevant name, or 0 without one
    (the mean over rankings is the mean reciprocal rank, Voorhees 1999).

    Args:
        ranking: Distinct names, best first.
        relevant: The relevant names, at least one.
        ks: Depths.
    """
    found: dict[str, float] = {}
    for k in ks:
        hits = len(relevant.intersection(ranking[:k]))
        found[f"top_k_accuracy@{k}"] = float(hits > 0)
        found[f"recall@{k}"] = hits / len(relevant)
        found[f"precision@{k}"] = hits / k
    first = next((rank for rank, name in enumerate(ranking, start=1) if name in relevant), None)
    return {**found, "mrr": 0.0 if first is None else 1 / first}
