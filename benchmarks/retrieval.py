"""Does a retriever that is trained on recorded calls find tools where words fail? `python -m benchmarks.retrieval [--quick]`.

The scripted expert plays training tasks of `quintain/tools-1k?mode=direct`; its runs are exported, and a retriever is trained on
them (`trunk: new`, for the embedded model is too small), all through the tools with real jobs. Then each held-out need is a query
over all 1,000 tools. No tool of a held-out need was ever called in training, and its verbs, openers and values are worded
otherwise. Two sets of hard needs count:

- `hard`: other words for verb and object;
- `no shared word`: those among them that share no word with the name, the description, the category or the parameters of their tool.

Objects keep their paraphrase in both splits. So a second retriever is trained without the calls of four categories, and measured on
needs of these: what it has never read a paraphrase of, it can hardly find, and that figure has no goal.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.figures import report, rounded, say, summarize
from benchmarks.jobs import finished_job
from quintain.datasets.recorded_calls import tool_document
from quintain.environments.registry import task_source
from quintain.environments.tools_1k.catalogue import CATEGORIES, FAMILY, Need, build_need, catalogue
from quintain.environments.tools_1k.retriever import ranking_metrics, words_of
from quintain.records.filters import TrajectoryFilter
from quintain.records.protocols import TextRetriever
from quintain.settings import Settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.services import Services, open_services
from quintain.tools.training.agents import resolve_agent
from quintain.tools.training.start import start_training
from quintain.trainers.retriever import nearest, open_retriever

ENVIRONMENT = "quintain/tools-1k"
SETTINGS = {"trunk": "new", "epochs": 5}
GAIN = 20.0
"""Points of recall@5 above BM25 on hard needs."""
METRICS = ("recall@1", "recall@5", "recall@10", "mrr", "ndcg@10")
UNREAD = ("kitchen", "sports", "network", "people")
"""Categories whose calls the second retriever never sees."""


def needs_of(difficulty: str, n: int, types: Sequence[str] = ("all",)) -> list[Need]:
    """Held-out needs of a difficulty."""
    source = task_source(f"{ENVIRONMENT}?difficulty={difficulty}&types={','.join(types)}")
    return [build_need(FAMILY.parse(task.id)) for task in source.tasks("held_out", n, 7)]


def without_shared_words(needs: Sequence[Need]) -> list[Need]:
    return [need for need in needs if not set(words_of(need.prompt)) & set(words_of(need.tool.text))]


def measured(retriever: TextRetriever, needs: Sequence[Need]) -> dict[str, float]:
    """Mean metrics of the rankings, in percent."""
    names = list(catalogue().tools)
    rankings = [[names[i] for i in retriever.search(need.prompt, 100)] for need in needs]
    found = [ranking_metrics(one, frozenset((need.tool.name,))) for one, need in zip(rankings, needs, strict=True)]
    return {name: 100 * statistics.fmean(one[name] for one in found) for name in METRICS}


def trained(
    services: Services, name: str, n_tasks: int, seed: int, types: Sequence[str]
) -> tuple[TextRetriever, str, float]:
    """Train a retriever on demonstrations; return its search, its agent's id and the seconds of its training job."""
    played = finished_job(
        services,
        collect_rollouts(
            services, "expert", f"{ENVIRONMENT}?mode=direct&types={','.join(types)}", n_tasks=n_tasks, seed=seed
        ).job_id,
    )
    runs = TrajectoryFilter(job_id=played.job_id)
    data = export_dataset(services, kind="sft", name=name, filter=runs, validation_share=0.1, seed=seed)
    began = time.perf_counter()
    started = start_training(
        services, "retriever", "starter", dataset_id=data.dataset_id, name=name, hyperparameters=SETTINGS, seed=seed
    )
    view = finished_job(services, started.job_id)
    seconds = time.perf_counter() - began
    agent = resolve_agent(services, name)
    say(
        f"{name}: {data.rows} calls, {seconds:.0f} s, job reports {(view.result.report if view.result else {}).get('held_out_agreement')}"
    )
    documents = [tool_document(tool.schema) for tool in catalogue().tools.values()]
    return open_retriever(Path(agent.model.path), documents), agent.id or "", seconds


def compare(seeds: int, n_tasks: int, n_needs: int) -> None:
    """Every metric of BM25 and of the trained retriever, over the seeds of the training."""
    hard = needs_of("hard", n_needs)
    sets = {
        "hard": hard,
        "no shared word": without_shared_words(hard),
        "medium": needs_of("medium", n_needs),
        "easy": needs_of("easy", n_needs),
    }
    lexical = {name: measured(catalogue().retriever, needs) for name, needs in sets.items()}
    dense: dict[str, list[dict[str, float]]] = {name: [] for name in sets}
    seconds = list[float]()
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as home:
            services = open_services(Settings(home=Path(home)), trusted=True)
            try:
                retriever, agent, took = trained(services, f"finder-{seed}", n_tasks, seed, ("all",))
                seconds.append(took)
                for name, needs in sets.items():
                    dense[name].append(measured(retriever, needs))
                if seed == 0:
                    _played(services, agent)
            finally:
                services.close()
    for name, needs in sets.items():
        for metric in METRICS:
            values, base = [one[metric] for one in dense[name]], lexical[name][metric]
            report(f"{name}, {metric}", values, "%", None, bm25=rounded(base), needs=len(needs), seeds=seeds)
        gains = [one["recall@5"] - lexical[name]["recall@5"] for one in dense[name]]
        goal = GAIN if name in ("hard", "no shared word") else None
        report(f"{name}, gain of recall@5 over BM25", gains, "points", goal, needs=len(needs), seeds=seeds)
    report("training job", seconds, "s", 120, "lower", calls=n_tasks)


def unread(n_tasks: int, n_needs: int) -> None:
    """Needs of categories without a call in training."""
    with tempfile.TemporaryDirectory() as home:
        services = open_services(Settings(home=Path(home)), trusted=True)
        try:
            read = [name for name in CATEGORIES if name not in UNREAD]
            retriever, _, _ = trained(services, "finder-unread", n_tasks, 0, read)
        finally:
            services.close()
        for difficulty in ("easy", "hard"):
            needs = needs_of(difficulty, n_needs, UNREAD)
            found, base = measured(retriever, needs), measured(catalogue().retriever, needs)
            name = f"categories without a call in training, {difficulty}, recall@5"
            report(name, [found["recall@5"]], "%", None, bm25=rounded(base["recall@5"]), needs=len(needs))


def _played(services: Services, agent: str) -> None:
    """Success of the scripted expert that gets five retrieved tools, as `evaluate_agent` measures it."""
    for retriever in ("bm25", agent):
        reference = f"{ENVIRONMENT}?mode=retrieved&k=5&difficulty=hard&retriever={retriever}"
        view = finished_job(services, evaluate_agent(services, "expert", reference, n_tasks=200).job_id)
        rate = 100 * ((view.result.success_rate if view.result else None) or 0.0)
        found = "BM25" if retriever == "bm25" else "the trained retriever"
        report(f"expert with 5 tools found by {found}, success", [rate], "%", None, episodes=200)


def searches(n: int, goal: float | None = None, width: int = 128) -> None:
    """Report the time of a search among random vectors."""
    chance = np.random.default_rng(0)
    vectors = chance.standard_normal((n, width), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = []
    for query in vectors[:50]:
        began = time.perf_counter()
        nearest(vectors, query, 10)
        found.append(1000 * (time.perf_counter() - began))
    report(f"search among {n:,} texts", found, "ms", goal, "lower", width=width)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one seed, fewer needs")
    quick = parser.parse_args().quick
    compare(seeds=1 if quick else 3, n_tasks=2400, n_needs=200 if quick else 400)
    if not quick:
        unread(n_tasks=2400, n_needs=200)
    searches(100_000, goal=50)
    searches(1_000_000)
    summarize()
