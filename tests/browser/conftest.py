"""The web page in a real browser: `quintain ui` as its own process on homes of real data, and the system's Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if find_spec("playwright") is None or find_spec("axe_playwright_python") is None:
    collect_ignore_glob = ["test_*.py"]  # `make browser` installs them
BUILD = Path(__file__).parents[2] / "build" / "browser"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, so that `make test` leaves them out."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:  # of thousands of items, which is why no path is taken apart
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.timeout(600))


class Site(NamedTuple):
    """A running web page."""

    url: str
    token: str
    home: Path
    ids: dict[str, str]
    """What the demo made, by name; see `demo_home`."""


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The home folder of a short demo, and the ids of what is in it."""
    from browser.demo_home import make_home

    home = tmp_path_factory.mktemp("demo") / "home"
    return home, make_home(home)


@contextmanager
def serve(home: Path, ids: dict[str, str], port: int = 0, **settings: str) -> Iterator[Site]:
    """Run `quintain ui` on a home folder, with more environment variables."""
    command = [sys.executable, "-m", "quintain.cli.main", "ui", "--port", str(port), "--home", str(home)]
    env = {**os.environ, "QUINTAIN_POLL_S": "0.1", **settings}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert "#token=" in second, first + second
        yield Site(first.strip().rstrip("/"), second.strip().partition("#token=")[2], home, ids)
    finally:
        process.terminate()
        assert process.wait(20) is not None
        process.stdout and process.stdout.close()


@pytest.fixture(scope="session")
def site(demo: tuple[Path, dict[str, str]]) -> Iterator[Site]:
    """The page of the demo's home folder."""
    with serve(*demo) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install quintain[browser]"
    )
    pytest.importorskip("axe_playwright_python", reason="axe is not installed: pip install quintain[browser]")
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        # A container's root cannot have the sandbox; the pages are this test's own.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any, site: Site) -> Iterator[Callable[..., Any]]:
    """Open the demo's page as a reader: `visit(mode)`; at the end its faults are checked."""
    from browser.visitor import Visitor

    with ExitStack() as stack:
        yield lambda mode="light": stack.enter_context(Visitor(browser, site.url, site.token, mode))


@pytest.fixture(scope="session")
def figures() -> Iterator[dict[str, Any]]:
    """Measured times, written to `build/browser/figures.json` at the end; they are reported and not asserted."""
    found: dict[str, Any] = {}
    yield found
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "figures.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
