"""Ten thousand runs and a thousand jobs: every page paints, lists page while they are scrolled, and hold few elements."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from browser.conftest import Site, serve
from browser.paths import paths_of
from browser.visitor import Visitor
from quintain.records.trajectory import Step
from quintain.store.database.engine import write_transaction
from quintain.store.database.tables import jobs
from quintain.store.store import open_store
from trajectory_runs import NOW, answer, call, run, user

RUNS = 10_000
JOBS = 1_000
LONG = 400
"""Steps of the long run."""
MOST_ROWS = 100
"""Table rows that may be elements at once: those in sight and some around them."""
FOCUSED_ROW = "document.activeElement.closest('tr')?.dataset.key"


def long_run() -> tuple[Step, ...]:
    return (user(), *(call(result=f"Result {place}. " * 40, item=str(place)) for place in range(LONG)), answer())


@pytest.fixture(scope="module")
def large_site(demo: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("large") / "home"
    shutil.copytree(demo[0], home)
    store = open_store(f"sqlite:///{home / 'quintain.db'}")
    (long,) = store.trajectories.add_many([run("long", *long_run())], NOW)
    store.trajectories.add_many([run(f"task-{place}", episode_key=str(place)) for place in range(RUNS)], NOW)
    with write_transaction(store.engine) as connection:
        row = connection.execute(select(jobs).where(jobs.c.id == demo[1]["rollouts"])).mappings().one()
        unlike = {"seq", "id", "request_key"}
        shared = {name: value for name, value in row.items() if name not in unlike}
        copies = [{**shared, "id": f"job-{place:010d}", "request_key": f"copy-{place}"} for place in range(JOBS)]
        connection.execute(insert(jobs), copies)
    store.close()
    with serve(home, {**demo[1], "long": long.id}) as site:
        yield site


def test_ten_thousand_runs_page_while_they_are_scrolled_in_few_elements(
    browser: Any, large_site: Site, figures: dict[str, Any]
) -> None:
    with Visitor(browser, large_site.url, None) as visitor:
        page = visitor.open("/runs")
        page.evaluate("window.longTasks.length = 0")
        box, status = page.locator(".list-box"), page.locator(".list-status")
        rows = 0
        for _ in range(400):
            box.evaluate("box => { box.scrollTop = box.scrollHeight; }")
            visitor.settle()
            rows = max(rows, page.locator("tbody tr").count())
            if "so far" not in status.inner_text():
                break
        listed = int(status.inner_text().removesuffix(" runs").replace(",", ""))
        assert listed > RUNS
        assert rows < MOST_ROWS
        box.evaluate("box => { box.scrollTop = 0; }")
        visitor.settle()
        page.locator("tr[data-key] a").first.wait_for()
        tasks = sorted(page.evaluate("window.longTasks")) or [0]
        figures["while_10000_runs_are_scrolled"] = {
            "rows_as_elements": rows,
            "long_tasks": len(tasks),
            "median_ms": tasks[len(tasks) // 2],
            "longest_ms": tasks[-1],
        }


def test_a_long_transcript_loads_page_by_page_and_a_link_opens_a_step_far_down(browser: Any, large_site: Site) -> None:
    with Visitor(browser, large_site.url, None) as visitor:
        page = visitor.open(f"/runs/{large_site.ids['long']}")
        assert page.locator(".run-step").count() < LONG / 4
        page.locator(".run-step").last.scroll_into_view_if_needed()
        page.locator("#step-45").wait_for(state="attached")
        visitor.open("/")
        page = visitor.open(f"/runs/{large_site.ids['long']}#step-200")
        assert page.locator("#step-200").is_visible()
        assert page.evaluate("Math.abs(document.querySelector('#step-200').getBoundingClientRect().top) < innerHeight")


def test_keys_lead_from_the_list_through_runs_and_back_to_its_place(browser: Any, large_site: Site) -> None:
    with Visitor(browser, large_site.url, None) as visitor:
        page = visitor.open("/runs?text=red box")
        page.locator(".list-box").focus()
        for _ in range(40):  # the rows are drawn anew while the list scrolls
            page.keyboard.press("Tab")
            page.wait_for_timeout(30)
            assert page.evaluate(FOCUSED_ROW), "Tab left the rows"
        page.keyboard.press("Home")
        for key in ("j", "j", "Enter"):
            page.keyboard.press(key)
        visitor.settle()
        keys = page.url.rpartition("/")[2]
        assert page.evaluate("document.activeElement.id") == "main", "the next Tab begins at the run, not at the top"
        page.keyboard.press("j")
        page.wait_for_url(lambda url: url.startswith(f"{large_site.url}/runs/") and keys not in url)
        visitor.settle()
        page.keyboard.press("k")
        page.wait_for_url(f"**/runs/{keys}")
        visitor.settle()
        page.keyboard.press("Escape")
        page.wait_for_url("**/runs?text=red*")
        visitor.settle()
        assert page.evaluate(FOCUSED_ROW) == keys, "the arrows go on from the run that was opened"


def test_every_page_paints_with_ten_thousand_runs(browser: Any, large_site: Site, figures: dict[str, Any]) -> None:
    paints: dict[str, dict[str, int]] = {}
    with Visitor(browser, large_site.url, None) as visitor:
        visitor.open("/")
        for name, path in paths_of(visitor, large_site.ids).items():
            page = visitor.open(path)
            first = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            shown = page.evaluate("Math.max(...performance.getEntriesByType('resource').map((one) => one.responseEnd))")
            paints[name] = {"first_paint_ms": round(first), "last_data_ms": round(shown)}
            assert page.locator("main").inner_text().strip()
    figures["pages_with_10000_runs_and_1000_jobs"] = paints
