"""Values against people's labels: calibrations, panels of judges, and tournaments of runs and agents."""

from __future__ import annotations

import json
import math
import random
import re
from itertools import product
from pathlib import Path

import pytest
from scipy.optimize import brentq
from typer.testing import CliRunner

from fake_endpoint import Answer, Asked, profile, serving, write_profiles
from fake_endpoint import says as replies
from mcp_client import ToolCaller
from quintain.cli.main import app
from quintain.errors import InvalidInput
from quintain.evaluation.bradley_terry import ELO_SCALE
from quintain.records.filters import TrajectoryFilter
from quintain.records.jobs.job import JobStatus
from quintain.records.labels.preference import Preference
from quintain.records.trajectory import AgentInfo, Task
from quintain.scoring.calibration.fitting import apply
from quintain.scoring.calibration.panel import panel_value
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.tools.data.trajectories import search_trajectories
from quintain.tools.jobs.jobs import get_job
from quintain.tools.labels.calibration import fit_calibration
from quintain.tools.labels.scoring import score_trajectories
from quintain.tools.services import Services
from scripted_judges import by_run, recorded, scored
from tools.stored_records import add_runs, add_scores, ended, new_score
from trajectory_runs import NOW, answer, later, run, user


def judged(services: Services, n: int = 60, *, scorer: str = "judge") -> list[str]:
    """Runs whose judge says 0.5 + 0.4 * what ann says."""
    chance = random.Random(0)
    runs = [
        run(
            f"t{i // 2}",
            user(),
            answer(f"Reply {i}."),
            task=Task(id=f"t{i // 2}", prompt="Find it.", environment="quintain/inventory"),
            tags=("first",) if i < 20 else (),
        )
        for i in range(n)
    ]
    ids = add_runs(services, *runs)
    labels = [round(chance.random(), 3) for _ in ids]
    services.store.scores.add_many(
        [new_score(i, scorer, 0.5 + 0.4 * y, rater="assistant") for i, y in zip(ids, labels, strict=True)]
        + [new_score(i, "people", y, rater="person:ann") for i, y in zip(ids, labels, strict=True)],
        NOW,
    )
    return ids


def test_scores_are_mapped_to_what_people_said_and_the_map_is_kept_as_a_version(services: Services) -> None:
    judged(services)
    first = fit_calibration(services, "judge")
    assert (first.n_labels, first.calibration_id) == (60, "cal-judge-1")
    assert first.error_after < first.error_before / 2
    assert first.spearman == pytest.approx(1.0)
    assert any("person:ann" in warning for warning in first.warnings)
    assert "score_trajectories(scorer={'judge': 1}" in first.next_step
    kept = services.store.calibrations.newest("judge")
    assert apply(kept, 0.7, "generic") == pytest.approx(0.5, abs=0.05)
    assert fit_calibration(services, "judge", method="platt").calibration_id == "cal-judge-2"


def test_the_raw_value_of_a_calibrated_score_is_fitted_and_the_mean_of_each_raters_newest_label(
    services: Services,
) -> None:
    """Raw scores 0.9 where values are 0.2; ben said 0 and then 1, ann 0: the label is 0.5."""
    ids = judged(services, 10, scorer="other")
    services.store.scores.add_many(
        [new_score(i, "judge", 0.2, raw=0.9, calibration="cal-judge-1", rater="endpoint:a") for i in ids], NOW
    )
    services.store.scores.add_many(
        [new_score(i, "people", 0.0, rater=who) for i in ids for who in ("person:ann", "person:ben")], later(1)
    )
    services.store.scores.add_many([new_score(i, "people", 1.0, rater="person:ben") for i in ids], later(2))
    made = fit_calibration(services, "judge")
    assert made.error_before == pytest.approx((0.9 - 0.5) ** 2)
    assert any("Every score is 0.9" in warning for warning in made.warnings)
    assert any("disagree" in warning for warning in made.warnings)


def test_runs_without_a_number_on_both_sides_do_not_count(services: Services) -> None:
    ids = judged(services, 20)
    more = judged(services, 28)[20:]
    services.store.scores.add_many([new_score(i, "other", None, rater="assistant") for i in ids[:5]], later(1))
    scored = [new_score(i, "other", 0.5, rater="assistant") for i in [*ids[5:], *more[:2]]]
    services.store.scores.add_many(scored, later(1))
    assert fit_calibration(services, "other").n_labels == 17


def test_a_filter_chooses_runs_and_too_few_labels_are_refused(services: Services) -> None:
    judged(services)
    assert fit_calibration(services, "judge", filter=TrajectoryFilter(tags=("first",))).n_labels == 20
    with pytest.raises(InvalidInput, match=r"\[too_few_labels\] 0 runs .*get_judging_batch"):
        fit_calibration(services, "rules")
    with pytest.raises(InvalidInput, match="got 'people' and 'people'; give"):
        fit_calibration(services, "people")


def test_scorers_with_odd_names_get_ids_of_their_own(services: Services) -> None:
    made = []
    for name in ("mix(outcome=0.5, rules=0.5)", "mix(outcome=0.5,rules=0.5)", "裁判"):
        judged(services, 12, scorer=name)
        made.append(fit_calibration(services, name).calibration_id)
    assert len(set(made)) == 3
    assert all(identity.isascii() and identity.startswith("cal-") for identity in made)


def test_the_tool_its_resource_and_its_picture_are_there_over_the_protocol(services: Services, ask: ToolCaller) -> None:
    judged(services)
    uri = ask("fit_calibration", scorer="judge", per_domain=False)["resource_uri"]
    assert json.loads(ask.read(uri).text)["domains"]["*"]["n_labels"] == 60
    title, *bins = ask.read(f"{uri}/table").text.splitlines()
    assert title.startswith("all domains: 60 labels, ")
    assert sum(int(line.rsplit("n ", 1)[1]) for line in bins) == 60
    assert ask.read(f"{uri}/picture").blob.startswith("iVBORw0KGgo")
    without, unknown = ask.refused("fit_calibration", {"scorer": "rules"}, {"scorer": "rulse"})
    assert without.startswith("[too_few_labels]")
    assert "0 runs have scores and 60 have labels" in without
    assert "score_trajectories(scorer='rules'" in without
    assert "[not_found] expected a scorer, got 'rulse' (did you mean 'rules'?)" in unknown
    kept = ask("list_library", kind="calibrations")["items"]
    assert [(one["id"], one["domains"]["*"]["n_labels"]) for one in kept] == [("cal-judge-1", 60)]
    cursor, limit = ask.refused("list_library", {"kind": "scorers", "cursor": "x"}, {"kind": "agents", "limit": True})
    assert cursor.startswith("[bad_cursor]")
    assert "expected a number, got a boolean" in limit


def test_the_command_fits_prints_and_draws(services: Services, home: Path, tmp_path: Path) -> None:
    judged(services)
    png = tmp_path / "reliability.png"
    shown = CliRunner().invoke(app, ["calibrate", "judge", "--picture", str(png), "--home", str(home)])
    assert shown.exit_code == 0, shown.output
    assert "cal-judge-1: 60 labels" in shown.output
    assert "Held-out error" in shown.output
    assert png.read_bytes().startswith(b"\x89PNG")
    as_json = CliRunner().invoke(app, ["calibrate", "judge", "--json", "--home", str(home)])
    assert json.loads(as_json.output)["calibration_id"] == "cal-judge-2"
    refused = CliRunner().invoke(app, ["calibrate", "rules", "--home", str(home)])
    assert refused.exit_code == 2


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


HALF = len(json.dumps(["", "", []]))
"""Characters that a step without words counts."""


def pairwise_judge(asked: Asked, before: int) -> Answer:
    """The longest ladder wins; of coins the one that is shown first."""
    one, other = by_run(asked.user)
    if "coin" in one:
        return replies(json.dumps({"quotes": ["Such a coin", "Such a coin"], "better": "A"}))
    better = "A" if one.count("rung") > other.count("rung") else "B"
    return replies(json.dumps({"quotes": ["Such a ladder", "Such a ladder"], "better": better}))


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


@pytest.mark.usefixtures("jobs_in_process")
def test_a_judges_tournament_values_each_run_by_its_chance_against_the_others(services: Services) -> None:
    """Of three ladders the third beats both, the second the first, so strengths are t, 0, -t.

    The maximum does not exist; with half a virtual win and loss each, 2 - f(2t) - f(t) = f(t) - 1/2, f the logistic. The best
    run's value is the mean of f(2t) and f(t), the middle one's 1/2.
    """
    ladder, coin = Task(id="ladder", prompt="Build a ladder."), Task(id="coin", prompt="Find a coin.")
    runs = [run(None, user(), answer("Such a ladder" + " rung" * n), task=ladder) for n in (1, 2, 3)]
    runs += [run(None, user(), answer(f"Such a coin: {n}"), task=coin) for n in (1, 2)]
    ids = add_runs(services, *runs, run("alone"))
    with serving(pairwise_judge) as fake:
        write_profiles(services.settings, profile("judge", fake.url))
        job = score_trajectories(services, "judge", judge="endpoint:judge", mode="pairwise", trajectory_ids=ids)
    ended = get_job(services, str(job.job_id))
    assert ended.status == "succeeded", ended.error
    report = ended.result.report
    counted = ("order_inconsistent", "shown_first_preferred", "shown_second_preferred")
    assert [report[name] for name in counted] == [1, 5, 3]
    assert report["order_p"] == pytest.approx(2 * (56 + 28 + 8 + 1) / 256)  # 5 or more of 8

    found = score_trajectories(services, "tournament", trajectory_ids=ids)
    assert (found.scored, found.unscored_count) == (5, 1)
    t = brentq(lambda t: logistic(2 * t) + 2 * logistic(t) - 2.5, 0, 10)
    values = [services.store.scores.of_trajectory(run_id)[0] for run_id in ids[:5]]
    best = (logistic(2 * t) + logistic(t)) / 2
    assert [one.value for one in values] == pytest.approx([1 - best, 0.5, best, 0.5, 0.5], abs=1e-4)
    assert values[2].feedback.startswith("2 of 2 comparisons won among 3 runs; strength +")
    assert "shrunk" in values[2].feedback
    assert "shrunk" not in values[3].feedback
    assert [item.id for item in search_trajectories(services, sort="tournament", limit=1).items] == [ids[2]]


def test_agents_are_ranked_by_preferences_with_a_judges_bias_for_length_taken_out(
    services: Services, ask: ToolCaller
) -> None:
    """Two agents of equal strength; a run that is twice as long wins 3 of 4.

    x is the longer one in 36 of 48 games, so it leads as long as length is not taken out: 30 of 48 are odds of 5/3.
    """
    text = {length: "a" * (length - HALF) for length in (64, 128)}

    def of(agent: str, length: int, n: int) -> list[str]:
        name = AgentInfo(name=agent)
        label = [Task(id=f"{agent}-{length}-{i}", prompt="Find it.") for i in range(n)]
        return add_runs(services, *(run(None, user(), answer(text[length]), task=task, agent=name) for task in label))

    refused = ask.refused("list_library", {"kind": "tournament"})
    assert refused[0].startswith("[nothing_compared]")
    x_long, x_short, y_long, y_short = of("x", 128, 9), of("x", 64, 3), of("y", 128, 4), of("y", 64, 4)
    x_leads, y_leads = list(product(x_long, y_short)), list(product(x_short, y_long))
    games = [(a, b, n < 27) for n, (a, b) in enumerate(x_leads)] + [(a, b, n >= 9) for n, (a, b) in enumerate(y_leads)]
    services.store.preferences.add_many(
        [
            Preference(a=a, b=b, better="a" if won else "b", source="endpoint", rater="endpoint:j")
            for a, b, won in games
        ],
        NOW,
    )
    x, y, bias = ask("list_library", kind="tournament")["items"]
    assert (x["agent"], x["games"], x["won"]) == ("x", 48, 30.0)
    assert x["elo"] == pytest.approx(1500, abs=2)
    assert x["elo_with_length"] - y["elo_with_length"] == pytest.approx(ELO_SCALE * math.log(30 / 18), abs=0.2)
    assert (bias["rater"], bias["length_bias"]) == ("endpoint:j", pytest.approx(math.log(3), abs=0.02))
    assert 0 < bias["low"] < bias["high"]

    # People who prefer x on the runs of equal length are the reference, without a bias of their own.
    pairs = list(product(x_long[:4], y_long[:3]))
    services.store.preferences.add_many(
        [Preference(a=a, b=b, better="a", source="person", rater="person:ann") for a, b in pairs], NOW
    )
    x, y, bias = ask("list_library", kind="tournament")["items"]
    assert (x["agent"], x["games"]) == ("x", 60)
    assert x["elo"] > y["elo"] + 50
