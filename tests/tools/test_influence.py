"""Influence as a job: runs are ranked by what training on them would do for the runs of a dataset."""

from __future__ import annotations

import pytest

from quintain.records.filters import TrajectoryFilter
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.jobs.jobs import get_job
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from tools.stored_records import add_runs, error_of
from trajectory_runs import answer, call, run, user


@pytest.mark.usefixtures("jobs_in_process")
def test_runs_are_ranked_by_their_gradients_towards_those_of_a_dataset_and_sorted_by_it(services: Services) -> None:
    targets = [run(f"t{n}", user(), call("look", "a box", at=f"shelf {n}"), answer(), tags=("good",)) for n in range(3)]
    add_runs(services, *targets)
    alike = run("a", user(), call("look", "a box", at="shelf 7"), answer(), tags=("pool",))
    garbled = run("b", user(), answer("zq xj vv kk qp wx"), tags=("pool",))
    silent = run("c", user(), answer().model_copy(update={"train": False}), tags=("pool",))
    pool = add_runs(services, alike, garbled, silent)
    export_dataset(services, "sft", "target", filter=TrajectoryFilter(tags=("good",)))

    chosen = TrajectoryFilter(tags=("pool",))
    job = score_trajectories(services, "influence", judge="starter", target="target", filter=chosen)
    ended = get_job(services, str(job.job_id))
    assert ended.status == "succeeded", ended.error
    assert (ended.result.n, ended.result.n_error) == (2, 1)
    assert {name: ended.result.report[name] for name in ("runs", "targets", "targets_unread", "text_spearman")} == {
        "runs": 3, "targets": 3, "targets_unread": 0, "text_spearman": 1.0,
    }  # fmt: skip
    found = search_trajectories(services, chosen, sort="influence").items
    assert [item.id for item in found] == pool[:2]
    assert (found[0].score or 0) > 0.8 > (found[1].score or 1)
    score = services.store.scores.of_trajectory(pool[0])[0]
    assert [(part.name, part.weight) for part in score.components] == [("gradient", 1.0), ("text", 0.0)]
    assert "to the gradients of 3 targets" in score.feedback
    read = score_trajectories(services, "influence", filter=chosen)
    assert (read.scored, read.unscored_count) == (2, 1)
    assert "cannot be trained on" in next(iter(read.reasons))

    for arguments, message in (
        ({"judge": "starter"}, r"[no_target] expected `target`, the dataset of the runs"),
        ({"judge": "starter", "target": "nothing"}, "expected a dataset id or name, got 'nothing'"),
        ({"judge": "expert", "target": "target"}, "a script without weights"),
        ({"target": "target"}, "`target`"),
    ):
        error = error_of(score_trajectories, services, "influence", filter=chosen, **arguments)
        assert message in str(error), str(error)
    error = error_of(score_trajectories, services, "judge", judge="starter", target="target", filter=chosen)
    assert "only scorer='influence' takes `target`" in str(error)
