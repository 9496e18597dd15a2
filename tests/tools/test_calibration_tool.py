"""fit_calibration as a tool, a resource, a picture and a command; what it joins and what it stores."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcp_client import ToolCaller
from quintain.cli.main import app
from quintain.errors import InvalidInput
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import Task
from quintain.scoring.calibration.fitting import apply
from quintain.tools.labels.calibration import fit_calibration
from quintain.tools.services import Services
from tools.stored_records import add_runs, new_score
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
