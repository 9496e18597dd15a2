"""The documentation as a site: it builds strictly, asks nothing of other servers, and has every page in its navigation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"


def _pages(entry: Any) -> list[str]:
    """Return the pages of a part of the navigation, in order."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in _pages(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    named = _pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    docs = ROOT / "docs"
    assert sorted(named) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


@pytest.mark.docs
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere() -> None:
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install quintain[docs]")
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(SITE)]
    built = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=110)
    assert built.returncode == 0, built.stdout + built.stderr
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?((?:https?:)?//[^\" >]+)")
    found = {url for page in SITE.rglob("*.html") for url in loaded.findall(page.read_text(encoding="utf-8"))}
    assert found == set()
    styles = "".join(page.read_text(encoding="utf-8") for page in SITE.rglob("*.css"))
    assert re.findall(r"url\(\"?(?:https?:)?//[^)]+", styles) == []


@pytest.mark.docs
def test_the_search_of_the_built_site_knows_words_of_every_kind_of_page() -> None:
    if not (SITE / "search" / "search_index.js").is_file():
        pytest.skip("the site is not built: make docs")
    index = json.loads((SITE / "search" / "search_index.json").read_text(encoding="utf-8"))
    folders = {entry["location"].partition("/")[0] for entry in index["docs"]}
    assert {"tutorials", "how-to", "reference", "explanation"} <= folders
    assert any("McNemar" in entry["text"] for entry in index["docs"])
