"""Hostile texts in every stored field: nothing runs, nothing loads, nothing breaks the page, and the text is shown as text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from browser.conftest import Site, serve
from browser.demo_home import Demo
from browser.paths import paths_of
from browser.visitor import Visitor
from jobs_in_process import in_process
from quintain.records.score import Component, Score, StepScore
from quintain.settings import Settings
from quintain.tools.services import open_services
from trajectory_runs import NOW

SHORT = "<img src=x onerror=window.canary=1>"
SCRIPT = "<script>window.canary=1</script>"
TEXT = (
    f"{SCRIPT}{SHORT}<a href='javascript:window.canary=1'>x</a> javascript:window.canary=1 \"><svg onload=window.canary=1> "
    "</pre></main><style>*{display:none}</style> {{constructor.constructor('window.canary=1')()}} \u202egnp.exe\u202c \u2066x "
    "\x1b[31mred\x1b[0m \x1b]8;;http://elsewhere.example\x07link\x1b]8;;\x07 &lt;b&gt;"
)
LINE = "A" * 60_000


def hostile_run() -> dict[str, Any]:
    """Return a run with hostile text wherever a recorder can put it."""
    call = {"tool": SHORT, "args": {SHORT: TEXT, "line": LINE}, "call_id": SHORT}
    acted = {"actor": "agent", "message": TEXT, "thought": TEXT, "actions": [call], "model": SHORT}
    acted["observations"] = [{"content": TEXT, "call_id": SHORT}, {"content": f"{LINE}{TEXT}", "is_error": True}]
    return {
        "task": {"id": SHORT, "prompt": TEXT, "type": SHORT, "difficulty": SHORT, "environment": SHORT},
        "agent": {"name": SHORT, "version": SHORT, "model": TEXT},
        "tools": [{"type": "function", "function": {"name": SHORT, "description": TEXT}}],
        "steps": [
            {"actor": "system", "message": f"{TEXT}{LINE}"},
            {
                "actor": "user",
                "message": [{"type": "text", "text": TEXT}, {"type": "image", "uri": "javascript:window.canary=1"}],
            },
            acted,
            {"actor": "agent", "message": TEXT},
        ],
        "outcome": {"status": "success", "reward": 1.0, "exit_status": TEXT, "scores": {SHORT: 1.0}},
        "tags": ["hostile"],
        "extra": {SHORT: TEXT},
    }


def fill(home: Path, ids: dict[str, str]) -> dict[str, str]:
    """Add hostile texts to a copy of the demo's home; returns the ids of what has them."""
    with in_process():
        services = open_services(Settings(home=home, poll_s=0.05))
        demo = Demo(services)
        run = demo.call("record_trajectory", trajectory=hostile_run()).trajectory_id
        part = Component(name=SHORT, weight=1, value=0.5, feedback=TEXT)
        about: dict[str, Any] = {
            "feedback": TEXT,
            "components": (part,),
            "steps": (StepScore(step=0, value=0.5, feedback=TEXT),),
        }
        fixed: dict[str, Any] = {"trajectory_id": run, "rubric": SHORT}
        scores = [
            Score(**fixed, **about, scorer=SHORT, status="scored", value=0.5),
            Score(**fixed, scorer="judge", rater=SHORT, status="unscored", reason=TEXT),
        ]
        services.store.scores.add_many(scores, NOW)
        agent = demo.call(
            "register_agent", name="hostile", model="starter", system_prompt=TEXT, description=TEXT
        ).agent.id
        data = demo.call(
            "export_dataset", kind="sft", name="hostile", filter={"tags": ["hostile"]}, include_held_out=True
        )
        (home / "jobs" / ids["training"] / "log").write_text(f"{TEXT}\n{LINE}\n", encoding="utf-8")
        for earlier in services.store.evaluations.page(limit=2).items:
            results = tuple(one.model_copy(update={"task_id": f"{SHORT} {one.task_id}"}) for one in earlier.results)
            named = {
                "id": f"{earlier.id}-hostile",
                "environment": SHORT,
                "results": results,
                "by_type": {SHORT: earlier.rate},
            }
            services.store.evaluations.add(earlier.model_copy(update={**named, "suite_hash": SHORT}), NOW)
        compared = demo.call("compare_agents", agents=["baseline", "sft"], environment=SHORT)
        services.close()
    return {**ids, "run": run, "agent": agent, "sft": data.dataset_id, "comparison": compared.comparison_id}


@pytest.fixture(scope="module")
def hostile_site(demo: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("hostile") / "home"
    shutil.copytree(demo[0], home)
    with serve(home, fill(home, demo[1])) as site:
        yield site


_FINDINGS = """() => ({
  canary: window.canary ?? null,
  handlers: [...document.querySelectorAll("*")].filter((one) => one.getAttributeNames().some((name) => name.startsWith("on"))).length,
  scripts: document.querySelectorAll("script:not([src]), main script, main style").length,
  images: document.querySelectorAll("main img[src=x]").length,
  links: [...document.links].filter((link) => !/^https?:$/.test(link.protocol)).length,
  elsewhere: [...document.links].filter((link) => link.origin !== location.origin).length,
  tooWide: document.documentElement.scrollWidth > window.innerWidth,
})"""
NOTHING = dict.fromkeys(("handlers", "scripts", "images", "links", "elsewhere"), 0) | {"canary": None, "tooWide": False}


def test_hostile_texts_in_every_stored_field_do_not_run_and_are_shown(browser: Any, hostile_site: Site) -> None:
    shown: set[str] = set()
    with Visitor(browser, hostile_site.url, hostile_site.token, "narrow") as visitor:
        paths = paths_of(visitor, hostile_site.ids)
        paths["leaderboard"] += f"?environment={quote(SHORT)}"
        paths["lineage of a run"] = f"/lineage/{hostile_site.ids['run']}"
        for name, path in paths.items():
            page = visitor.open(path)
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            visitor.settle()
            assert page.evaluate(_FINDINGS) == NOTHING, path
            text = page.locator("main").inner_text()
            if SCRIPT in text or SHORT in text:
                shown.add(name)
            if name == "run":
                asked = page.locator("#step-1").text_content() or ""
                assert SCRIPT in asked
                assert "[picture: javascript:window.canary=1]" in asked
        visitor.open("/judging?tag=hostile")
        page.locator("form button.primary").click()
        page.locator(".judged-run").wait_for()
        assert SCRIPT in page.locator(".judged-run").inner_text()
        assert page.evaluate(_FINDINGS) == NOTHING
    assert {"runs", "run", "dataset", "agent", "comparison", "leaderboard"} <= shown, shown


def test_hidden_characters_are_shown_by_their_code_points(browser: Any, hostile_site: Site) -> None:
    with Visitor(browser, hostile_site.url, hostile_site.token) as visitor:
        page = visitor.open(f"/runs/{hostile_site.ids['run']}")
        text = page.locator(".transcript").inner_text()
    assert not {"\u202e", "\u2066", "\x1b"} & set(text)
    assert "U+202E" in text
    assert "U+001B" in text


@pytest.mark.parametrize(
    "path",
    [
        "/runs/<script>",
        "/jobs/..%2f..%2fetc%2fpasswd",
        "/datasets/%00",
        "/runs/%ff",
        "/lineage/" + "x" * 3000,
        "/no/such/page",
    ],
)
def test_an_address_of_nothing_shows_an_error_and_the_way_back(browser: Any, hostile_site: Site, path: str) -> None:
    visitor = Visitor(browser, hostile_site.url, hostile_site.token)
    page = visitor.open(path)
    main = page.locator("main").inner_text()
    assert page.evaluate(_FINDINGS) == NOTHING
    assert page.locator("main [role=alert]").count() == 1, main
    assert str(hostile_site.home) not in main
    assert page.locator("main a[href='/']").count() == 1
    visitor.close()
