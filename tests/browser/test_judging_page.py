"""A person judges with the keyboard alone: blind, each verdict in the store at once, undo, skip, and a reload that loses nothing."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from browser.conftest import Site
from browser.visitor import Visitor
from quintain.records.filters import TrajectoryFilter
from quintain.records.score import Score
from quintain.store.store import open_store


def verdicts_of(site: Site, rater: str) -> dict[str, list[Score]]:
    """Run -> the rater's verdicts with components, newest first."""
    store = open_store(f"sqlite:///{site.home / 'quintain.db'}")
    try:
        runs = [item.id for item in store.trajectories.search(TrajectoryFilter(), limit=200).items]
        found = {run: [one for one in store.scores.of_trajectory(run) if one.rater == rater] for run in runs}
    finally:
        store.close()
    return {run: scores for run, scores in found.items() if scores}


def ties_of(site: Site, rater: str) -> list[bool]:
    """Whether each stored preference of the rater is a tie."""
    store = open_store(f"sqlite:///{site.home / 'quintain.db'}")
    try:
        found = store.preferences.page(limit=200).items
    finally:
        store.close()
    return sorted(one.better == "tie" for one in found if one.rater == rater)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def is_run(page: Page, text: str) -> None:
    expect(page.locator(".judging")).to_be_visible()
    expect(page.locator("main")).to_contain_text(text)


def test_the_keyboard_leads_through_judging_and_the_store_has_each_verdict(
    visit: Callable[[], Visitor], site: Site
) -> None:
    visitor = visit()
    page = visitor.open(f"/judging?job_id={site.ids['rollouts']}")
    while page.evaluate("document.activeElement.name") != "rater":
        press(page, "Tab")
    page.keyboard.type("Grace")
    press(page, "Enter")
    is_run(page, "Run 1 of 10")
    shown = page.locator(".judged-run").inner_text().lower()
    for hidden in ("baseline", "traj-", site.ids["rollouts"], "success", "failure"):
        assert hidden not in shown

    press(page, "5", "3")
    is_run(page, "Run 2 of 10")
    ((stored,),) = verdicts_of(site, "person:Grace").values()
    assert {one.name: one.value for one in stored.components} == {"task_completion": 1.0, "process": 0.5}
    assert "relayed" not in stored.feedback

    press(page, "2")
    page.reload()
    is_run(page, "Run 2 of 10")
    assert page.locator("input:checked").evaluate_all("all => all.map((one) => [one.name, one.value])") == [
        ["task_completion", "2"]
    ]
    press(page, "c")
    page.keyboard.type("Twice the same search.")
    press(page, "Escape", "4")
    is_run(page, "Run 3 of 10")
    press(page, "s")
    is_run(page, "Run 4 of 10")
    found = verdicts_of(site, "person:Grace")
    assert len(found) == 3
    assert sum(scores[0].takes_back for scores in found.values()) == 1
    (noted,) = [scores[0] for scores in found.values() if "Twice the same search." in scores[0].feedback]
    assert {one.name: one.value for one in noted.components} == {"task_completion": 0.25, "process": 0.75}

    press(page, "u")
    is_run(page, "Run 3 of 10")
    press(page, "u")
    is_run(page, "Run 2 of 10")
    assert verdicts_of(site, "person:Grace")[noted.trajectory_id][0].takes_back
    press(page, "5")
    is_run(page, "Run 3 of 10")
    changed = verdicts_of(site, "person:Grace")[noted.trajectory_id]
    assert {one.name: one.value for one in changed[0].components} == {"task_completion": 0.25, "process": 1.0}


def test_judging_without_the_token_says_how_to_get_it(browser: object, site: Site) -> None:
    with Visitor(browser, site.url, token=None) as visitor:  # type: ignore[arg-type]
        page = visitor.open("/judging")
        expect(page.locator("main")).to_contain_text("#token=")
        assert not page.locator("form").count()


def test_pairs_are_judged_by_the_arrows_and_can_be_withdrawn(visit: Callable[[], Visitor], site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/judging?job_id={site.ids['rollouts']}")
    page.fill("input[name=rater]", "Edith")
    page.select_option("select[name=mode]", "pairwise")
    page.locator("form button").click()
    is_run(page, "Pair 1 of")
    assert page.locator(".judged-run").count() == 2
    assert not {"baseline", "traj-", "success", "failure"} & set(page.locator("main").inner_text().lower().split())
    press(page, "ArrowLeft")
    is_run(page, "Pair 2 of")
    press(page, "t")
    is_run(page, "Pair 3 of")
    assert ties_of(site, "person:Edith") == [False, True]
    press(page, "u")
    is_run(page, "Pair 2 of")
    assert ties_of(site, "person:Edith") == [False]
    press(page, "ArrowRight")
    is_run(page, "Pair 3 of")
    assert ties_of(site, "person:Edith") == [False, False]
    assert not visitor.findings()
