"""Does self-play pay? `python -m benchmarks.self_play [--seeds N] [--first-seed N] [--set JSON]`.

The embedded model learns the moves of `quintain/nim` from the scripted expert's games, then plays against itself and its earlier
versions. It is measured against the model before self-play, and both against the expert, from held-out positions; roles alternate.
There are few such positions and a greedy game repeats itself, so the models sample as in training, and each game is another one.
Sampling less of what is unlikely wins games too: the greedy start against the sampling one is the control.
`--set` replaces settings of the training. Every figure is a line of JSON on stdout, with a 95 % Clopper-Pearson interval over games.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from typing import Any

from benchmarks.figures import report, say
from quintain.evaluation.statistics.success_rates import clopper_pearson
from quintain.tools import RLTrainingTool

ENVIRONMENT = "quintain/nim?difficulty=easy&types=normal"
GAMES = 200
SETTINGS: dict[str, Any] = {
    "self_play": {}, "rollouts": 20, "tasks_per_step": 8, "group_size": 8, "max_new_tokens": 64, "learning_rate": 3e-4,
}  # fmt: skip


class Study:
    """One seed in a home of its own."""

    def __init__(self, home: str, seed: int) -> None:
        self._tool, self._seed = RLTrainingTool(home=home), seed

    def job(self, action: str, **arguments: Any) -> dict[str, Any]:
        """Carry out a job and return its result."""
        started = json.loads(self._tool.run({"action": action, "seed": self._seed, **arguments}))
        if "job_id" not in started:
            raise RuntimeError(f"{action}: {started}")
        job = json.loads(self._tool.run({"action": "wait", "job_id": started["job_id"]}))
        if job["status"] != "succeeded":
            raise RuntimeError(f"{action}: {job.get('error')}")
        result: dict[str, Any] = job["result"] | {"job_id": started["job_id"]}
        return result

    def learn_moves(self) -> str:
        """Train the embedded model on games of the expert against itself; return the agent."""
        played = self.job("collect_rollouts", agent="expert", environment=ENVIRONMENT, opponent="self", n_tasks=400)
        found = {"job_id": played["job_id"]}  # both players: the expert's moves are right in lost games too
        keep = ["success", "failure"]
        self._tool.run({"action": "export_dataset", "kind": "sft", "name": "games", "filter": found, "outcomes": keep})
        settings = {"epochs": 2, "learning_rate": 1e-3}
        trained = self.job(
            "start_training", method="sft", model="starter", dataset_id="games", name="mover", hyperparameters=settings
        )
        return str(trained["agent"])

    def play_itself(self, agent: str, settings: dict[str, Any]) -> str:
        """Train an agent by self-play; return the new one."""
        asked = {"environment": ENVIRONMENT, "name": "player", "hyperparameters": settings}
        return str(self.job("start_training", method="grpo", model=agent, **asked)["agent"])

    def wins(self, agent: str, opponent: str) -> tuple[int, int]:
        """Return the games that an agent wins against another from held-out positions, and the games with a verdict."""
        about = self.job("evaluate_agent", agent=agent, environment=ENVIRONMENT, opponent=opponent, n_tasks=GAMES)
        return round(about["success_rate"] * about["n"]), about["n"]

    def sampling(self, agent: str) -> str:
        """Register an agent again so that it samples as in training; return the new one."""
        name = f"{agent.removeprefix('agent:').partition('@')[0]}-sampling"
        asked = {"action": "register_agent", "name": name, "model": agent, "sampling": {"temperature": 1.0}}
        answer = json.loads(self._tool.run(asked))
        return str(answer["agent"]["id"])


def main() -> None:
    """Print the figures of each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--set", type=json.loads, default={}, help="settings of the training, as JSON")
    asked = parser.parse_args()
    rates: dict[str, list[float]] = {}
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            began, study = time.perf_counter(), Study(home, seed)
            greedy = study.learn_moves()
            player, mover = study.sampling(study.play_itself(greedy, SETTINGS | asked.set)), study.sampling(greedy)
            for name, agent, opponent in (
                ("self-play against its start", player, mover),
                ("greedy start against its start", greedy, mover),
                ("self-play against the expert", player, "expert"),
                ("its start against the expert", mover, "expert"),
            ):
                rate = clopper_pearson(*study.wins(agent, opponent))
                more: dict[str, Any] = {"low": rate.ci_low, "high": rate.ci_high, "n": rate.n, "seed": seed}
                report(f"nim, {name}: games won", [rate.value or 0.0], "share", None, **more)
                rates.setdefault(name, []).append(rate.value or 0.0)
            say(f"seed {seed}: {time.perf_counter() - began:.0f} s")
    for name, values in rates.items():
        report(f"nim, {name}: games won over the seeds", values, "share", None)


if __name__ == "__main__":
    main()
