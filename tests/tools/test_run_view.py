"""A run as get_trajectory shows it: its stored scores by step, and the steps that no training uses."""

from __future__ import annotations

from quintain.records.score import TAKEN_BACK, Component, StepScore
from quintain.tools.data.trajectories import get_trajectory
from quintain.tools.services import Services
from tools.stored_records import add_runs, add_scores, new_score
from trajectory_runs import answer, call, run, user


def test_a_page_of_a_run_has_the_newest_scores_with_the_values_of_its_steps(services: Services) -> None:
    masked = answer("Not mine.").model_copy(update={"train": False})
    (run_id,) = add_runs(services, run("t1", user(), call(item="box"), masked, answer("Done.")))

    def add(value: float | None, rater: str | None = None, **fields: object) -> None:
        add_scores(services, new_score(run_id, "judge", value, rater=rater, **fields))

    add(0.25, feedback="older")
    steps = (StepScore(step=0, value=1.0), StepScore(step=2, value=0.5, feedback="Late."))
    add(0.75, steps=steps, components=(Component(name="process", weight=1, value=0.75),), feedback="x" * 300)
    add(0.5, rater="person:Ada")
    add(None, rater="person:Ada", reason=f"{TAKEN_BACK}: a slip")

    view = get_trajectory(services, run_id, max_chars=100)
    taken_back, newest = view.scores
    assert taken_back["rater"] == "person:Ada"
    assert "value" not in taken_back
    assert newest["value"] == 0.75
    assert newest["parts"] == {"process": 0.75}
    assert newest["feedback"].endswith("[200 more characters]")
    assert newest["steps"] == [{"step": 1, "value": 1.0}, {"step": 3, "value": 0.5, "feedback": "Late."}]
    assert view.masked == (2,)
    later = get_trajectory(services, run_id, first_step=3)
    assert later.scores[1]["steps"] == [{"step": 3, "value": 0.5, "feedback": "Late."}]
    assert later.masked == ()
