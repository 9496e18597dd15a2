"""Every page by the keyboard alone: Tab reaches what can be used, the focus is seen and stays while the page changes."""

from __future__ import annotations

from collections.abc import Callable

from browser.conftest import Site
from browser.paths import paths_of
from browser.visitor import Visitor

_FOCUS = """() => {
    const one = document.activeElement;
    if (one === document.body) return null;
    const place = one.getBoundingClientRect(), line = (element) => element && getComputedStyle(element);
    const isMarked = line(one).outlineStyle !== "none" || line(one.querySelector("rect"))?.strokeWidth === "3px"
        || line(one.nextElementSibling)?.outlineStyle === "solid";
    return { what: one.outerHTML.slice(0, 120), isMarked, isInSight: place.bottom > 0 && place.top < innerHeight };
}"""
"""What has the focus: whether it is marked, by itself, its box in a graph, or the text of its choice."""
MOST_STOPS = 120


def test_tab_reaches_the_end_of_every_page_with_a_visible_focus(visit: Callable[[], Visitor], site: Site) -> None:
    visitor = visit()
    faults = []
    for name, path in paths_of(visitor, site.ids).items():
        page = visitor.open(path)
        for _ in range(MOST_STOPS):
            page.keyboard.press("Tab")
            if (focus := page.evaluate(_FOCUS)) is None:
                break
            if not (focus["isMarked"] and focus["isInSight"]):
                faults.append((name, focus))
        else:
            faults.append((name, f"no end within {MOST_STOPS} stops"))
    assert not faults


def test_the_focus_stays_on_what_is_drawn_anew_while_a_job_moves(visit: Callable[[], Visitor], site: Site) -> None:
    visitor = visit()
    settings = {"epochs": 200, "batch_size": 2}
    started = visitor.call(
        "start_training", method="sft", model="baseline", dataset_id="own-sft", name="moves", hyperparameters=settings
    )
    focused = "document.activeElement.textContent"
    page = visitor.open("/jobs")
    page.locator(f"tr[data-key={started['job_id']}] a").first.focus()
    page.locator(f"tr[data-key={started['job_id']}]", has_text=" of 600").wait_for()
    assert page.evaluate(focused) == started["job_id"]
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{started['job_id']}")
    visitor.settle()
    page.get_by_role("button", name="Cancel").focus()
    status = page.locator("p[role=status]", has_text="step")
    before = status.inner_text()
    status.filter(has_not_text=before).wait_for()
    assert page.evaluate(focused) == "Cancel"
    page.keyboard.press("Enter")
    page.locator(".head .badge.cancelled").wait_for()


def test_escape_returns_to_the_flip_and_to_the_button_of_a_note(visit: Callable[[], Visitor], site: Site) -> None:
    visitor = visit()
    page = visitor.open(f"/comparisons/{site.ids['comparison']}")
    flip = page.locator(".choice-box button").nth(1)
    flip.press("Enter")
    page.locator(".side-by-side").wait_for()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == flip.inner_text()
    page = visitor.open(f"/jobs/{site.ids['training']}")
    page.get_by_role("button", name="Name or note").press("Enter")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "Name or note"
