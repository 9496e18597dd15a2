"""Comparisons, lineage and agents in a real browser: flips side by side, the graph by keyboard, forgetting, talking."""

from __future__ import annotations

from collections.abc import Callable

from browser.conftest import Site
from browser.visitor import Visitor

Visit = Callable[..., Visitor]


def test_a_flip_opens_two_runs_side_by_side_and_marks_the_first_difference(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/comparisons/{site.ids['comparison']}")
    stored = visitor.call("compare_agents", agents=[site.ids["comparison"]])
    assert page.locator("p.next").inner_text().lower().startswith("verdict")
    assert stored["verdict"] in page.locator("p.next").inner_text()
    pairs = page.locator("table.forest tbody tr")
    assert pairs.count() == len(stored["comparisons"])
    assert pairs.first.locator("svg circle").count() == 1
    assert stored["flips_count"] > 0, "the demo's training changed what is solved"

    page.locator("button.link").first.press("Enter")
    visitor.settle()
    sides = page.locator(".side-by-side > header")
    assert [sides.nth(i).locator(".badge").inner_text() for i in range(2)] == ["solved", "failed"]
    assert page.locator(".first-difference").count() == 1
    first, second = (page.locator(".turn.differs").nth(i).inner_text() for i in range(2))
    assert first != second
    before = page.locator(".side-by-side > .turn:not(.differs)")
    assert before.nth(0).inner_text().split("·")[0] == before.nth(1).inner_text().split("·")[0], "both begin alike"

    address = page.url
    assert "flip=" in address
    page.reload()
    visitor.settle()
    assert page.locator(".first-difference").count() == 1, "the address names the open flip"


def test_two_evaluations_of_the_same_tasks_are_chosen_and_compared(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/comparisons?agent={site.ids['agent']}")
    boxes = page.locator("details input[type=checkbox]")
    boxes.nth(1).wait_for()
    assert boxes.first.is_checked(), "the newest evaluation of the agent is chosen"
    compare = page.get_by_role("button", name="Compare", exact=True)
    assert compare.is_disabled()
    page.locator("details input[type=checkbox]:not(:checked):enabled").first.press("Space")
    compare.press("Enter")
    page.wait_for_url("**/comparisons/cmp-*")
    visitor.settle()
    assert page.locator("table.forest tbody tr").count() == 1
    first = page.evaluate(
        "import('/static/intervals.js').then((module) => module.linearScale(0.46, 0.69, [0]).ticks[0])"
    )
    assert first == 0, "the line of no difference is on the axis, however far the interval is"


def test_the_graph_is_walked_by_keyboard_from_the_agent_to_its_dataset(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/lineage/{site.ids['agent']}")
    focused = "document.activeElement.getAttribute('data-id')"
    page.locator("select").first.focus()
    for _ in range(3):
        page.keyboard.press("Tab")
        if page.evaluate(focused):
            break
    assert page.evaluate(focused) == site.ids["agent"], "Tab reaches the graph where its lineage begins"
    visited = set()
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
        visited.add(page.evaluate(focused))
    assert site.ids["training"] in visited
    assert "agent:starter@1" in visited
    page.locator(f"[data-id='{site.ids['sft']}']").focus()
    page.keyboard.press("Enter")
    assert page.locator(f"[data-id='{site.ids['sft']}']").get_attribute("aria-pressed") == "true"
    page.get_by_role("link", name="Open").press("Enter")
    page.wait_for_url(f"**/datasets/{site.ids['sft']}")


def test_forgetting_shows_the_counts_of_a_dry_run_and_changes_nothing(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/lineage/{site.ids['run']}")
    page.get_by_role("button", name="Forget…").press("Enter")
    dialog = page.locator("dialog[open]")
    dialog.locator("dl").wait_for()
    rehearsed = visitor.call("forget", id=site.ids["run"])
    shown = dialog.locator("dl").inner_text().split("\n")
    assert shown[shown.index("Runs that would be forgotten") + 1] == "1"
    assert shown[shown.index("Scores removed") + 1] == str(rehearsed["scores_removed"])
    assert shown[shown.index("Affected objects") + 1] == str(rehearsed["touched_count"])
    act = dialog.get_by_role("button", name="Forget for good")
    assert act.is_disabled(), "nothing happens before the id is typed"
    dialog.get_by_role("textbox").fill(site.ids["run"][:-1])
    assert act.is_disabled()
    assert not visitor.findings()
    page.keyboard.press("Escape")
    assert page.locator("dialog").count() == 0
    assert visitor.call("get_trajectory", trajectory_id=site.ids["run"])["total_steps"] > 0
    assert visitor.call("forget", id=site.ids["run"])["runs"] == 1


def test_a_dataset_is_removed_from_its_lineage_after_the_same_dry_run(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/lineage/{site.ids['sft']}")
    page.get_by_role("button", name="Remove…").press("Enter")
    dialog = page.locator("dialog[open]")
    dialog.locator("dl").wait_for()
    rehearsed = visitor.call("forget", id=site.ids["sft"])
    shown = dialog.locator("dl").inner_text().split("\n")
    assert "Runs that would be forgotten" not in shown
    assert shown[shown.index("Affected objects") + 1] == str(rehearsed["touched_count"])
    assert dialog.get_by_role("checkbox").count() == 1, "copies alone: equal runs are of runs"
    assert dialog.get_by_role("button", name="Remove for good").is_disabled()
    assert not visitor.findings()
    page.keyboard.press("Escape")
    assert visitor.call("forget", id=site.ids["sft"])["dry_run"]


def test_without_the_token_the_dry_run_is_shown_and_nothing_can_be_forgotten(browser: object, site: Site) -> None:
    with Visitor(browser, site.url, None) as visitor:  # type: ignore[arg-type]
        page = visitor.open(f"/lineage/{site.ids['run']}")
        page.get_by_role("button", name="Forget…").click()
        page.locator("dialog[open] dl").wait_for()
        assert "read-only" in page.locator("dialog[open]").inner_text()
        assert page.get_by_role("button", name="Forget for good").count() == 0
        status = page.evaluate(
            "(id) => fetch('/api/tools/forget', { method: 'POST', headers: { 'Content-Type': 'application/json' },"
            " body: JSON.stringify({ id, dry_run: false }) }).then((answer) => answer.status)",
            site.ids["run"],
        )
        assert status == 401
        visitor.faults = [fault for fault in visitor.faults if "401" not in fault]  # the browser reports that request
        page.goto(f"{site.url}/agents/{site.ids['agent'].removeprefix('agent:')}")
        visitor.settle()
        assert "read-only" in page.locator("main").inner_text()


def test_an_agent_answers_on_its_page_and_the_conversation_becomes_a_run(visit: Visit, site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/agents/{site.ids['agent'].removeprefix('agent:')}")
    page.get_by_label("Tools and prompt").select_option("quintain/inventory")
    page.get_by_label("Message").fill("What is the price of the red lamp? <b>Now</b>")
    page.get_by_label("Message").press("Enter")
    page.get_by_text("Your turn.").wait_for(timeout=90_000)
    log = page.get_by_role("log")
    assert "<b>Now</b>" in log.inner_text(), "text is shown as text"
    assert log.locator(".turn.agent").count() >= 1
    page.get_by_role("button", name="End and keep as a run").press("Enter")
    page.get_by_text("It is stored as a run.").wait_for(timeout=60_000)
    job_id = page.url.rpartition("talk=")[2]
    (kept,) = visitor.call("search_trajectories", filter={"job_id": job_id})["items"]
    assert kept["tags"] == ["conversation"]
