"""A home folder with the data of a short demo: every record is written by a real tool or a real job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs_in_process import in_process
from quintain.settings import Settings
from quintain.tools.catalog import tool
from quintain.tools.invocation import call
from quintain.tools.services import Services, open_services

ENVIRONMENT = "quintain/inventory"
HELD_OUT_TASKS = 16
ACTING = {"max_turns": 8, "sampling": {"max_new_tokens": 160}}
"""How the demo's evaluations play, which differs from the defaults."""


class Demo:
    """The calls of a short demo, in the process of the test."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.ids: dict[str, str] = {}

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Return the result of a tool."""
        return call(self.services, tool(name), arguments)

    def job(self, name: str, /, **arguments: Any) -> Any:
        """Start a job, which runs to its end here, and return its view.

        Raises:
            AssertionError: the job did not succeed.
        """
        started = self.call(name, **arguments)
        self.services.jobs.reconcile()
        view = self.call("get_job", job_id=started.job_id)
        assert view.status == "succeeded", view
        return view

    def run(self) -> None:
        """Collect, score, export, train, evaluate, compare, judge and preview."""
        self.call("register_agent", name="baseline", model="starter", description="The embedded model as shipped.")
        rollouts = self.job(
            "collect_rollouts", agent="baseline", environment=ENVIRONMENT, n_tasks=8, attempts=3, temperature=1.0
        )
        runs = {"job_id": rollouts.job_id}
        self.call("score_trajectories", scorer="outcome", filter=runs)
        self.call("score_trajectories", scorer="rules", filter=runs)
        sft = self.call("export_dataset", kind="sft", name="own-sft", filter=runs, scorer="outcome", min_score=1.0)
        dpo = self.call(
            "export_dataset", kind="dpo", name="own-dpo", filter=runs, scorer="outcome", max_pairs_per_task=2
        )
        training = self.job(
            "start_training",
            method="sft",
            model="baseline",
            name="sft",
            dataset_id=sft.dataset_id,
            hyperparameters={"epochs": 4, "batch_size": 2, "learning_rate": 1e-3},
        )
        evaluations = [
            self.job("evaluate_agent", agent=agent, environment=ENVIRONMENT, n_tasks=HELD_OUT_TASKS, **ACTING)
            for agent in ("baseline", "sft")
        ]
        compared = self.call("compare_agents", agents=["baseline", "sft"], environment=ENVIRONMENT)
        batch = self._judge({"dataset_id": sft.dataset_id})
        for dataset in (sft, dpo):
            self.call("preview_dataset", dataset_id=dataset.dataset_id, model="baseline")
            self.services.jobs.reconcile()
        self.ids = {
            "rollouts": rollouts.job_id,
            "run": self.services.store.judging.get(batch).items[0].trajectory_ids[0],
            "batch": batch,
            "sft": sft.dataset_id,
            "dpo": dpo.dataset_id,
            "training": training.job_id,
            "evaluation": evaluations[-1].job_id,
            "comparison": compared.comparison_id,
            "measured": evaluations[-1].result.evaluation_id,
            "agent": "agent:sft@1",
        }

    def _judge(self, runs: dict[str, Any]) -> str:
        """Judge two of three runs; returns the batch."""
        batch = self.call("get_judging_batch", judge="person", rater="Ada", limit=3, filter=runs)
        names = [criterion.name for criterion in batch.rubric.criteria]
        answers = [
            {
                "item_id": item.item_id,
                "scores": dict.fromkeys(names, 0.25 * (place + 1)),
                "rationale": "Reads the stock first.",
            }
            for place, item in enumerate(batch.items[:2])
        ]
        own = tool("submit_scores").for_operator
        call(self.services, own, {"batch_id": batch.batch_id, "scores": answers})
        return str(batch.batch_id)


def make_home(folder: Path) -> dict[str, str]:
    """Fill a new home folder; returns the ids of what the views show."""
    with in_process():
        services = open_services(Settings(home=folder, poll_s=0.05, grace_s=2.0))
        try:
            demo = Demo(services)
            demo.run()
            return demo.ids
        finally:
            services.close()
