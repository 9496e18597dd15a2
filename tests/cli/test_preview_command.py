"""`quintain preview`: in colours, as a page, as JSON; stored text steers neither terminal nor browser."""

from __future__ import annotations

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.datasets.dataset_writer import ExportOptions, write_dataset
from quintain.datasets.selection import ExportCounts
from quintain.datasets.splits import KeyedRow
from quintain.evaluation.reports.preview_page import preview_page
from quintain.records.dataset import DatasetRow
from quintain.records.jobs.preview import Histogram, PreviewReport, PreviewRow, Span, SplitCounts, Statistics
from quintain.records.text import printable
from quintain.settings import Settings
from quintain.tools.services import Services
from terminal import quintain
from trajectory_runs import answer, call, run, user

EVIL = "<script>alert(1)</script><img src=x onerror=y>\"'& \x1b[2J\x1b]0;title\x07 \u202egnp.exe"


pytestmark = pytest.mark.usefixtures("jobs_in_process")


def preview(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return quintain("preview", *arguments, home=home)


@pytest.fixture
def dataset(settings: Settings, services: Services) -> str:
    """A dataset of two runs; the first holds text that means harm."""
    runs = [
        run("t0", user(EVIL), call("look", EVIL), answer("Box 0.")),
        run("t1", user("Find root:x:0."), answer("Box 1.")),
    ]
    lines = [KeyedRow(str(i), DatasetRow(trajectory=r)) for i, r in enumerate(runs)]
    written = write_dataset(
        lines, settings.datasets_dir / "ds-1", ExportOptions(dataset_id="ds-1", name="boxes"), ExportCounts()
    )
    services.store.datasets.add(written.dataset, [], services.clock())
    return written.dataset.id


class Tags(HTMLParser):
    """The tags of a page, the attributes that reach elsewhere, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def require_harmless(page: str) -> Tags:
    """No script, no picture, no link, no handler and no address, and yet the stored text is all there."""
    seen = Tags()
    seen.feed(page)
    assert not seen.tags & {"script", "img", "link", "iframe", "a", "object", "form", "base"}
    assert not {name for name in seen.attributes if name.startswith("on") or name in {"src", "href"}}
    assert "http://" not in page
    assert "https://" not in page
    assert printable(EVIL) in seen.text
    return seen


def test_a_dataset_is_shown_in_the_terminal_as_a_page_and_as_json(dataset: str, home: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = preview("boxes", "--model", "starter", "--html", str(page), "--rows", "2", home=home)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    for words in (
        "row 1",
        "row 2",
        "⟦Box 1.<|im_end|>⟧",
        "⟦trained⟧ ⟪falls off⟫",
        "2 rows",
        "Ready: 2 rows",
        "longest",
    ):
        assert words in done.stdout
    seen = require_harmless(page.read_text(encoding="utf-8"))
    assert "Ready: 2 rows" in seen.text

    remembered = preview(dataset, "--model", "starter", "--rows", "2", "--json", home=home)  # remembered: no other job
    report = PreviewReport.model_validate(json.loads(remembered.stdout))
    assert ([row.row for row in report.rows], report.statistics.kind) == ([1, 2], "sft")
    assert "root:x:0" in "".join(span.text for span in report.rows[1].spans), "no emoji in place of :x:"


def test_settings_of_the_training_count_and_what_is_wrong_is_told_with_exit_status_2(dataset: str, home: Path) -> None:
    short = ("boxes", "--model", "starter", "--set", "max_length=100", "--show", "truncated")
    done = preview(*short, home=home)
    assert "Fix first: " in done.stdout
    assert re.search("⟪[^⟫]+⟫\n\n", done.stdout), "what falls off is marked without colours, too"
    assert "set max_length to" in done.stdout
    for arguments, words in (
        (("none", "--model", "starter"), "[not_found]"),
        (("boxes", "--model", "starter", "--method", "dpo"), "[wrong_dataset_kind]"),
        (("boxes", "--model", "starter", "--set", "max_length=1"), "max_length"),
        ((*short, "--html", str(home / "none" / "x.html")), "cannot be written"),
    ):
        done = preview(*arguments, home=home)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_every_text_of_a_page_is_escaped_wherever_it_came_from() -> None:
    counts = SplitCounts(rows=1, dropped={EVIL: 1}, left_out_members={EVIL: 1})
    statistics = Statistics(
        fingerprint=EVIL,
        style=EVIL,
        kind=EVIL,
        method=EVIL,
        max_length=1,
        context_tokens=1,
        splits={EVIL: counts},
        lengths=Histogram(),
        checks={EVIL: {EVIL: EVIL}, "other": EVIL},
        warnings=(EVIL,),
        verdict=EVIL,
        places={},
    )
    span = Span(text=EVIL, by="user", trained=False, weight=0)
    row = PreviewRow(row=1, part=EVIL, id=EVIL, dropped=EVIL, spans=(span, span.model_copy(update={"cut": True})))
    report = PreviewReport(dataset_id=EVIL, agent=EVIL, job_id=EVIL, statistics=statistics, rows=(row,), more_parts=1)
    page = preview_page(report)
    require_harmless(page)
    assert "<script" not in page
    assert "\x1b" not in page
