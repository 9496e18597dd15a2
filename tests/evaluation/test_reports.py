from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evaluation.test_comparison import evaluated
from quintain.evaluation.comparison import compare
from quintain.evaluation.reports.figures import Figure, Panel, forest_plot
from quintain.evaluation.reports.report import as_html, as_markdown, comparison_report, evaluation_report
from quintain.evaluation.reports.standalone_page import standalone_page
from quintain.records.evaluation import Evaluation, Failures, Origin

HOSTILE = '<script>alert("x")</script>|`[a](javascript:x)`\x1b[31m\u202e\n# head'


class Tags(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)


def hostile() -> Evaluation:
    evaluation = evaluated("a", "1101", "1001")
    results = [result.model_copy(update={"task_id": f"{HOSTILE}{result.task_id}"}) for result in evaluation.results]
    failures = {"loop": Failures(n=1, examples=(HOSTILE,))}
    by_type = {HOSTILE: evaluation.rate}
    return evaluation.model_copy(update={"results": tuple(results), "failures": failures, "by_type": by_type})


def test_a_page_is_one_file_in_which_stored_text_is_only_text() -> None:
    page = as_html(evaluation_report(hostile()))
    tags = Tags()
    tags.feed(page)
    tables = {"table", "tr", "th", "td"}
    assert (
        tags.seen
        <= {"html", "head", "meta", "title", "style", "body", "main", "section", "div", "h1", "h2", "p"} | tables
    )
    assert "&lt;script&gt;" in page
    assert not {"\x1b", "\u202e"} & set(page)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_page_with_a_chart_allows_its_own_script_alone_and_no_text_ends_its_data(tmp_path: Path) -> None:
    figure = Figure(title=HOSTILE, panels=[Panel(title="</script><script>alert(1)</script>", bars=[])])
    page = standalone_page("report.js", "<main></main>", title=HOSTILE, data=figure)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    assert page.count("<script") == 2, "the data and the script"
    (script,) = scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert json.loads(data) == figure
    if node := shutil.which("node"):
        (tmp_path / "page.js").write_text(script, encoding="utf-8")
        subprocess.run([node, "--check", str(tmp_path / "page.js")], check=True)


def test_markdown_shows_stored_text_as_it_is() -> None:
    text = as_markdown(evaluation_report(hostile()))
    assert "<script>" not in text
    assert "\\<script\\>" in text
    rows = [line for line in text.splitlines() if line.startswith("|") and "script" in line]
    assert rows
    assert all("\\|\\`\\[a\\]" in row and "# head" in row for row in rows)


def test_a_report_of_an_evaluation_contains_its_results() -> None:
    """Repeats 1101 and 1001: 5 of 8 episodes, of four tasks 2 solved always, 1 once: pass@2 = 3/4, pass^2 = 1/2."""
    text = as_markdown(evaluation_report(evaluated("a", "1101", "1001")))
    assert "# agent:a@1 in test/env" in text
    assert "(5 of 8)" in text
    assert "| 2 | 75.0%" in text
    assert " 50.0%" in text
    assert "| even |" in text
    assert "## By difficulty" in text
    unknown = as_markdown(evaluation_report(evaluated("a", "?e")))
    assert "unknown (0 with a verdict)" in unknown
    assert "1 unknown, 1 errors" in unknown


def test_a_report_of_a_comparison_has_pairs_flips_lineage_and_a_picture() -> None:
    a, b = evaluated("a", "1" + "0" * 20), evaluated("b", "0" + "1" * 19 + "0")
    comparison = compare([a, b], ["old", "new"], "cmp-1", None)
    origin = Origin(agent="new", agent_id="agent:b@1", evaluation_id=b.id, ancestors=("agent:a@1",), dataset_id="ds-1")
    comparison = comparison.model_copy(update={"lineage": (origin,)})
    report = comparison_report(comparison)
    text = as_markdown(report)
    assert "new - old" in text
    assert "McNemar's exact test" in text
    assert "| b - a | verdict | difference, 95 % interval | p | tasks | left out |" in text, "of one pair, of success"
    assert "| t0 | old | new | traj-a-0-0 | traj-b-0-0 |" in text
    assert "| new | agent:b@1 | agent:a@1 | ds-1 |" in text
    assert "not significant" not in text
    page = as_html(report, forest_plot(comparison))
    assert '"label":"new\\n- old"' in page
    assert "\nimport " not in page, "the script needs no module loader"


def test_a_forest_shows_differences_and_rates_with_their_intervals() -> None:
    three = [evaluated(name, "1" * n + "0" * (30 - n)) for name, n in (("a", 28), ("b", 25), ("c", 3))]
    comparison = compare(three, ["a", "b", "c"], "cmp-1", None)
    differences, rates = forest_plot(comparison)["panels"]
    assert differences["title"].endswith("of each pair (thin: of all pairs together), p corrected by Holm")
    assert [row["label"] for row in differences["forest"]][-1] == "b\n- a"
    assert [row["strong"] for row in differences["forest"]] == [True, True, False]
    for row in (*differences["forest"], *rates["forest"]):
        assert row["low"] <= row["value"] <= row["high"]
    assert [row["label"] for row in rates["forest"]] == ["a (a)", "b (a)", "c (b)"]
    assert rates["forest"][0]["value"] == pytest.approx(28 / 30)
