"""Every page of the route table with the data of a short demo: it renders, is accessible, and its picture is kept."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from browser.conftest import BUILD, Site, serve
from browser.demo_home import HELD_OUT_TASKS
from browser.paths import paths_of
from browser.visitor import Mode, Visitor

_OUT_OF_SIGHT = """[...document.querySelectorAll("main table.list th")]
    .filter((head) => head.offsetParent && head.getBoundingClientRect().right > window.innerWidth + 1).map((head) => head.textContent)"""
"""Columns of a list that can be read only by scrolling it sideways."""


@pytest.mark.parametrize("mode", ["light", "dark", "narrow"])
def test_every_view_renders_without_serious_findings_and_fits_the_window(
    visit: Callable[[Mode], Visitor], site: Site, mode: Mode
) -> None:
    visitor = visit(mode)
    BUILD.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    for name, path in paths_of(visitor, site.ids).items():
        page = visitor.open(path)
        page.screenshot(path=BUILD / f"{mode}-{name}.png")
        assert not page.locator("main [role=alert]").count(), f"{path}: {page.locator('main').inner_text()[:300]}"
        if findings := visitor.findings():
            found[path] = findings
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.setdefault(path, []).append("the page is wider than the window")
        if columns := page.evaluate(_OUT_OF_SIGHT):
            found.setdefault(path, []).append(f"columns {columns} are out of sight")
    assert not found, "\n".join(f"{path}: {one}" for path, all_found in found.items() for one in all_found)


def test_a_run_that_an_agent_plays_appears_in_the_open_list(visit: Callable[[], Visitor], site: Site) -> None:
    visitor = visit()
    page = visitor.open("/runs?agent=expert")
    assert page.locator(".list-status").inner_text().startswith("No run matches")
    visitor.call("collect_rollouts", agent="expert", environment="quintain/inventory", n_tasks=2)
    page.wait_for_selector("tr[data-key]")
    assert page.locator("tr[data-key]").first.inner_text().startswith("success")
    assert "expert" in page.locator("tr[data-key]").first.inner_text()


def test_lists_are_narrowed_by_kind_and_task_and_the_first_tab_leads_to_the_content(
    visit: Callable[[], Visitor], site: Site
) -> None:
    visitor = visit()
    page = visitor.open("/jobs?kind=preview")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    names = page.locator("tr[data-key] td:nth-child(2)")
    assert {name.split()[0] for name in names.all_inner_texts()} == {"preview"}
    page.get_by_label("Kind").select_option("train")
    page.get_by_text("sft baseline -> sft", exact=False).wait_for()
    assert page.url.endswith("/jobs?kind=train")
    for view, (field, words) in {
        "jobs": ("Id, work or note", "own-sft"),
        "datasets": ("Name or id", site.ids["sft"]),
        "agents": ("Name", site.ids["agent"].removeprefix("agent:").partition("@")[0]),
        "comparisons": ("Agent, environment or id", site.ids["comparison"]),
    }.items():
        page = visitor.open(f"/{view}?text=nothing-is-called-so")
        assert page.locator(".list-status").inner_text() == "Nothing is found by these words."
        page.get_by_label(field, exact=True).fill(words)
        page.keyboard.press("Enter")
        page.locator("tr[data-key]").first.wait_for()
        assert page.url.endswith(f"/{view}?text={words}")
        assert page.locator("tr[data-key]", has_text=words).count() == page.locator("tr[data-key]").count()
    page = visitor.open(f"/runs/{site.ids['run']}")
    page.get_by_title("All runs of this task").click()
    visitor.settle()
    tasks = visitor.call("search_trajectories", filter={"task_id": page.get_by_label("Task id").input_value()})
    assert page.locator("tr[data-key]").count() == len(tasks["items"]) >= 1


def test_a_job_moves_on_its_open_page_without_a_reload(visit: Callable[[], Visitor], site: Site) -> None:
    visitor = visit()
    page = visitor.open("/jobs")
    page.evaluate("window.isSameDocument = true")
    started = visitor.call("collect_rollouts", agent="expert", environment="quintain/inventory", n_tasks=3)
    row = page.locator(f"tr[data-key={started['job_id']}]")
    row.locator(".badge.succeeded").wait_for()
    took = page.locator("table.list th").all_inner_texts().index("Took")
    assert row.locator("td").nth(took).inner_text().endswith(" s")
    assert page.evaluate("window.isSameDocument")


def test_a_training_is_planned_and_then_started_from_the_page_of_its_dataset(
    visit: Callable[[], Visitor], site: Site, browser: Any
) -> None:
    visitor = visit()
    page = visitor.open(f"/datasets/{site.ids['sft']}")
    start = page.get_by_role("button", name="Start training")
    for settings, fault in (("{", "expected settings as a JSON object"), ('{"epoch": 1}', "did you mean 'epochs'")):
        page.get_by_label("Settings, as JSON").fill(settings)
        page.get_by_role("button", name="Plan").click()
        page.get_by_role("alert").filter(has_text=fault).wait_for()
    assert [one for one in visitor.faults if "/api/tools/plan_training" not in one] == []
    visitor.faults.clear()  # the console reports the refused plan
    page.get_by_label("Settings, as JSON").fill('{"max_steps": 2}')
    page.get_by_role("button", name="Plan").click()
    start.wait_for()
    page.get_by_label("Name of the agent").fill("from-the-page")
    assert start.count() == 0, "a plan that is no longer the form's cannot be started"
    page.get_by_role("button", name="Plan").click()
    start.click()
    page.wait_for_url("**/jobs/job-*")
    visitor.settle()
    assert "-> from-the-page" in page.locator("h1").inner_text()
    visitor.call("cancel_job", job_id=page.url.rpartition("/")[2])
    with Visitor(browser, site.url, None) as reader:
        page = reader.open(f"/datasets/{site.ids['sft']}")
        page.get_by_role("button", name="Plan").click()
        button = page.get_by_role("button", name="Start training")
        button.wait_for()
        assert button.is_disabled()


def test_an_agent_is_measured_like_its_parent_and_trained_further_from_its_page(
    visit: Callable[[], Visitor], site: Site, browser: Any
) -> None:
    visitor = visit()
    address = f"/agents/{site.ids['agent'].removeprefix('agent:')}"
    page = visitor.open(address)
    assert page.get_by_label("Tasks", exact=True).input_value() == str(HELD_OUT_TASKS)
    page.get_by_role("button", name="Evaluate").click()
    page.wait_for_url("**/jobs/job-*")
    measured = visitor.call("get_job", job_id=page.url.rpartition("/")[2], detail="settings")["settings"]
    parent = visitor.call("get_job", job_id=site.ids["evaluation"], detail="settings")["settings"]
    alike = ("environment", "n_tasks", "repeats", "seed", "split", "max_turns", "sampling")
    assert all(measured[name] == parent[name] for name in alike)
    visitor.call("cancel_job", job_id=page.url.rpartition("/")[2])
    page = visitor.open(address)
    page.get_by_label("Method").select_option("grpo")
    page.get_by_label("Settings, as JSON").fill('{"max_steps": 1}')
    page.get_by_role("button", name="Plan").click()
    page.get_by_role("button", name="Start training").click()
    page.wait_for_url("**/jobs/job-*")
    visitor.settle()
    assert page.locator("h1").inner_text().startswith("grpo sft ->")
    visitor.call("cancel_job", job_id=page.url.rpartition("/")[2])
    with Visitor(browser, site.url, None) as reader:
        assert reader.open(address).get_by_role("button", name="Evaluate").is_disabled()


def test_every_suite_of_an_environment_has_its_leaderboard(visit: Callable[[], Visitor], site: Site) -> None:
    visitor = visit()
    started = visitor.call("evaluate_agent", agent="expert", environment="quintain/inventory", n_tasks=2, seed=7)
    assert visitor.call("get_job", job_id=started["job_id"], until="done", wait_s=50)["status"] == "succeeded"
    page = visitor.open("/leaderboard?environment=quintain/inventory")
    page.get_by_role("link", name="held_out, 2 tasks, seed 7").click()
    page.get_by_role("heading", name="held_out, 2 tasks, seed 7").wait_for()
    assert page.locator("tbody th").all_inner_texts() == ["1 expert@1"]


def test_each_row_of_an_x_ray_opens_at_what_trains(visit: Callable[[], Visitor], site: Site) -> None:
    page = visit().open(f"/datasets/{site.ids['dpo']}")
    page.locator(".spans .trained").first.wait_for()
    in_view = """(text) => {
        const [box, first] = [text, text.querySelector(".trained")].map((one) => one.getBoundingClientRect());
        return first.top > box.top && first.bottom < box.bottom;
    }"""
    rows = page.locator(".spans").all()
    assert rows
    assert all(row.evaluate(in_view) for row in rows)


def test_a_job_is_named_and_noted_on_its_page_and_the_list_shows_both(
    visit: Callable[[], Visitor], site: Site, browser: Any
) -> None:
    visitor = visit()
    page = visitor.open(f"/jobs/{site.ids['training']}")
    page.get_by_role("button", name="Name or note").click()
    page.get_by_label("Name", exact=True).fill("Before the fix")
    page.get_by_label("Note", exact=True).fill("Half of the rows had\nno <b>answer</b>.")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("heading", name="Before the fix").wait_for()
    assert page.locator("p.note").inner_text() == "Half of the rows had\nno <b>answer</b>."
    page = visitor.open("/jobs?kind=train")
    row = page.locator(f"tr[data-key={site.ids['training']}]").inner_text()
    assert "Before the fix Half of the rows had" in row
    with Visitor(browser, site.url, None) as reader:
        page = reader.open(f"/jobs/{site.ids['training']}")
        assert page.locator("p.note").count() == 1
        assert page.get_by_role("button", name="Edit").count() == 0
    visitor.call("annotate_job", job_id=site.ids["training"], name="", note="")


def test_tags_of_a_run_are_added_and_removed_on_its_page(
    visit: Callable[[], Visitor], site: Site, browser: Any
) -> None:
    visitor, address = visit(), f"/runs/{site.ids['run']}"
    page = visitor.open(address)
    page.get_by_label("Add a tag").fill("<b>gold</b>")
    page.get_by_label("Add a tag").press("Enter")
    page.get_by_role("link", name="<b>gold</b>", exact=True).wait_for()
    with Visitor(browser, site.url, None) as reader:
        assert reader.open(address).get_by_label("Add a tag").count() == 0
    found = visitor.call("search_trajectories", filter={"tags": ["<b>gold</b>"]})["items"]
    assert [one["id"] for one in found] == [site.ids["run"]]
    page.get_by_role("button", name="Remove the tag <b>gold</b>").click()
    page.get_by_role("link", name="<b>gold</b>", exact=True).wait_for(state="detached")
    assert "<b>gold</b>" not in visitor.call("get_trajectory", trajectory_id=site.ids["run"])["trajectory"].get(
        "tags", ()
    )


def test_a_job_beside_another_names_the_settings_in_which_they_differ(visit: Callable[[], Visitor], site: Site) -> None:
    page = visit().open(f"/jobs/{site.ids['training']}?with={site.ids['evaluation']}")
    page.get_by_text("Settings that differ").wait_for()
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="n_tasks", exact=True))
    assert row.locator("td").all_inner_texts() == ["–", str(HELD_OUT_TASKS)]
    page.get_by_title("Leave out").click()
    assert page.get_by_text("Settings that differ").count() == 0


def test_the_page_stays_below_the_path_of_a_proxy(browser: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/quintain"
    with (
        serve(tmp_path, {}, port, QUINTAIN_HTTP_PUBLIC_URL=url) as site,
        Visitor(browser, url, site.token) as visitor,  # which reports requests that leave the path
    ):
        page = visitor.open("/")
        page.get_by_role("link", name="Runs", exact=True).click()
        visitor.settle()
        assert page.url == f"{url}/runs"
        assert page.locator("#nav [aria-current=page]").inner_text() == "Runs"
        page.get_by_role("link", name="Judge these").click()
        visitor.settle()
        assert page.url == f"{url}/judging"
        assert visitor.open("/jobs").title() == "Jobs · Quintain"
        assert page.locator("#connection.live").count() == 1
