"""Several judges behind endpoints, with weights and a bias for length learned against people's labels."""

from __future__ import annotations

import re

import pytest

from fake_endpoint import Answer, Asked, profile, serving, write_profiles
from fake_endpoint import says as replies
from quintain.records.jobs.job import JobStatus
from quintain.records.trajectory import Task
from quintain.scoring.calibration.fitting import apply
from quintain.scoring.calibration.panel import panel_value
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.tools.labels.calibration import fit_calibration
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from scripted_judges import recorded, scored
from tools.stored_records import add_runs, add_scores, ended, new_score
from trajectory_runs import answer, run, user

NAMES = [criterion.name for criterion in RUBRICS["default"].criteria]
N = 24
LONG = " and so on" * 40


def judge(asked: Asked, before: int) -> Answer:
    """One judge compresses the worth into 0.25..0.75; the other mostly likes long answers, and some by luck."""
    found = re.search(r"worth 0\.(\d\d) luck 0\.(\d\d)", text := recorded(asked.user))
    if found is None:
        return replies(scored(NAMES, 0.0))
    worth, luck = (int(digits) / 100 for digits in found.groups())
    fair = asked.body["model"] == "fair-1"
    value = 0.25 + 0.5 * worth if fair else 0.2 + 0.2 * worth + 0.2 * luck + 0.35 * (LONG in text)
    return replies(scored(NAMES, round(value, 3), found.group()))


@pytest.mark.usefixtures("jobs_in_process")
def test_judges_are_weighted_by_their_errors_against_people_wherever_their_verdicts_are_read(
    services: Services,
) -> None:
    worth, luck = [(7 * i % N) / N for i in range(N)], [(5 * i % N) / N for i in range(N)]
    texts = [f"worth {worth[i]:.2f} luck {luck[i]:.2f}" + LONG * (i // 3 % 2) for i in range(N)]
    task = [Task(id=f"t{i // 2}", prompt="Find it.") for i in range(N)]
    ids = add_runs(services, *(run(None, user(), answer(texts[i]), task=task[i]) for i in range(N)))
    by_ann = {"rater": "person:ann", "rubric": "default"}
    add_scores(services, *(new_score(ids[i], "people", round(worth[i], 2), **by_ann) for i in range(N - 2)))
    with serving(judge) as fake:
        write_profiles(services.settings, *(profile(name, fake.url) for name in ("fair", "verbose")))
        for name in ("fair", "verbose"):
            job = score_trajectories(services, "judge", judge=f"endpoint:{name}", rubric="default", trajectory_ids=ids)
            assert ended(services, job).status is JobStatus.SUCCEEDED

    fitted = fit_calibration(services, "judge")
    assert fitted.panel["used"]
    fair, verbose = (fitted.panel["raters"][f"endpoint:{name}"] for name in ("fair", "verbose"))
    assert fair["weight"] > 0.95 > 0.05 > verbose["weight"]
    assert not fair["length_taken_out"]
    assert verbose["length_taken_out"]
    assert 0 < verbose["length_low"] < verbose["length_bias"] < verbose["length_high"]
    assert fitted.error_after < fitted.error_before / 10
    assert fitted.panel["error_weighted"] < fitted.panel["error_equal"]
    assert fitted.panel["alpha"] < 0.5

    # The last two runs have no label: they are valued by the panel and its map, uncalibrated by the plain mean.
    calibration = services.store.calibrations.newest("judge:default")
    for i, run_id in enumerate(ids[-2:], N - 2):
        verdicts = {
            "endpoint:fair": round(0.25 + 0.5 * round(worth[i], 2), 3),
            "endpoint:verbose": round(
                0.2 + 0.2 * round(worth[i], 2) + 0.2 * round(luck[i], 2) + 0.35 * (i // 3 % 2), 3
            ),
        }
        chars = len(texts[i]) + len('["", "", []]')
        expected = apply(calibration, panel_value(calibration.panel, verdicts, chars, 0.0), "generic")
        read = score_trajectories(services, "judge", trajectory_ids=[run_id]).summary.mean
        assert read == pytest.approx(expected, abs=1e-6)
        assert read == pytest.approx(worth[i], abs=0.1)
        raw = score_trajectories(services, "raw:judge", trajectory_ids=[run_id]).summary.mean
        assert raw == pytest.approx(sum(verdicts.values()) / 2, abs=1e-6)
