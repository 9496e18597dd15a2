"""The paths of all pages, from the page's own route table, so that a new view joins the tests of all views by itself."""

from __future__ import annotations

from urllib.parse import quote

from browser.visitor import Visitor

SHOWN = {
    "job": "training",
    "run": "run",
    "dataset": "sft",
    "agent": "agent",
    "comparison": "comparison",
    "evaluation": "measured",
    "lineage": "agent",
}
"""View of one object -> name of the demo's id that it shows."""


def paths_of(visitor: Visitor, ids: dict[str, str]) -> dict[str, str]:
    """Return view -> path, and further pages of views with more than one kind of content."""
    routes = visitor.page.evaluate("import('/static/routes.js').then((module) => module.ROUTES)")
    found = {route["view"]: route["path"].replace(":id", _id_of(route["view"], ids)) for route in routes}
    more = {"evaluation-job": f"/jobs/{ids['evaluation']}", "pairs": f"/datasets/{ids['dpo']}"}
    return {**found, **more, "judged": f"/judging?batch={ids['batch']}"}


def _id_of(view: str, ids: dict[str, str]) -> str:
    stored = ids[SHOWN[view]] if view in SHOWN else ""
    return quote(stored.removeprefix("agent:") if view == "agent" else stored, safe="@:")
