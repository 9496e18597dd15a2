"""The templates of plugins, installed, through the real product; broken and colliding packages harm nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import quintain as q
from installed_packages import Install, install_template
from jobs_in_process import in_process
from quintain.cli.commands.doctor import list_extensions, run_doctor
from quintain.client.filters import RunFilter
from quintain.errors import Conflict, Unavailable
from quintain.tools import RLTrainingTool
from quintain.tools.results import ExportResult

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "examples" / "plugins"
CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
TICKETS = [
    {"ticket": 1, "customer": "Where is my parcel?", "replies": ["At the depot.", "It arrives today."]}
    | {"resolved": True},
    {"ticket": 2, "customer": "Cancel my order.", "replies": ["It is cancelled."]},
    {"ticket": 3, "customer": "Hello?", "replies": []},
]


def test_each_template_works_through_the_product(
    home: Path, tmp_path: Path, install_package: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in sorted(PLUGINS.iterdir()):
        install_template(install_package, folder)
    names = ["acme_helpdesk", "acme_cards", "acme_brevity", "acme/boxes", "acme_audit"]
    assert [(one.name, one.fault) for one in list_extensions()] == [(name, None) for name in names]
    log = tmp_path / "tickets.jsonl"
    log.write_text("".join(json.dumps(ticket) + "\n" for ticket in TICKETS))
    with q.open(home) as opened:
        imported = opened.import_logs(log)
        assert (imported.format, imported.imported, imported.rejected_count) == ("acme_helpdesk", 2, 1)
        assert [run.outcome for run in opened.runs()] == ["unknown", "success"]

        good: RunFilter = {"agent": "helpdesk", "outcome": "success"}
        with pytest.warns(UserWarning, match=r".") as told:
            cards = opened.create_dataset("sft", "cards", filter=good, format="acme_cards")
        assert isinstance(cards.answer, ExportResult)
        assert [str(one.message) for one in told] == list(cards.answer.warnings)
        assert {one.filename for one in told} == {__file__}, "the line that called"
        table = Path(cards.answer.path) / "train.csv"
        assert table.read_text() == "front,back\nWhere is my parcel?,It arrives today.\n"

        scored = opened.score("acme_brevity", filter={"agent": "helpdesk"})
        assert (scored.scored, scored.summary.mean) == (2, 0.75)

    monkeypatch.setenv("QUINTAIN_LAUNCHER", "acme_audit")
    with q.open(home) as opened, in_process():
        job = opened.evaluate("starter", environment="acme/boxes?boxes=2", n_tasks=2).wait()
        assert job.evaluation.record.rate.n == 2
        (start,) = map(json.loads, (home / "jobs" / "starts.jsonl").read_text().splitlines())
        assert (start["job"], start["attempt"]) == (job.id, 1)


def test_the_page_on_a_kind_of_plugin_shows_its_template() -> None:
    for kind in ("an-importer", "an-exporter", "a-scorer", "a-launcher"):
        page = (ROOT / "docs" / "how-to" / f"add-{kind}.md").read_text(encoding="utf-8")
        folder = PLUGINS / kind.partition("-")[2]
        (module,) = folder.glob("*.py")
        assert f"```python\n{module.read_text(encoding='utf-8')}```" in page
        entry_points = (folder / "pyproject.toml").read_text(encoding="utf-8").split("\n\n")[2]
        assert f"```toml\n{entry_points}\n```" in page


def test_a_broken_package_is_named_and_nothing_else_fails(
    home: Path, tmp_path: Path, install_package: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PLUGINS / "importer" / "acme_helpdesk.py").read_text(encoding="utf-8")
    modules = {
        "acme_exits": "raise SystemExit(3)",
        "acme_plain": "Reader = object",
        "acme_helpdesk": text.replace("rows(report)", "rows(nothing)"),
    }
    readers = {"gone": "acme_exits:Reader", "plain": "acme_plain:Reader", "acme_helpdesk": "acme_helpdesk:Helpdesk"}
    entries = {"quintain.importers": readers, "quintain.exporters": {"gone": "acme_exits:Writer"}}
    install_package("acme-broken", modules, entries)
    install_package("acme-damaged", {}, {})
    (tmp_path / "site" / "acme_damaged-1.0.dist-info" / "entry_points.txt").write_text(
        "[quintain.importers]\nno value\n"
    )
    log = tmp_path / "tickets.jsonl"
    log.write_text(json.dumps(TICKETS[0]) + "\n")
    with q.open(home) as opened:
        imported = opened.import_logs(log)
        (rejected,) = imported.rejected
        assert rejected.reason.startswith("the reader acme_helpdesk of package acme-broken failed (NameError")
        notes = " ".join(imported.notes)
        assert "'gone' of package acme-broken (quintain.importers: acme_exits:Reader): SystemExit: 3" in notes
        assert "cannot read entry_points.txt of package acme-damaged" in notes
        assert "expected name, title, detect, read at plain = acme_plain:Reader of package acme-broken" in notes
        (run,) = opened.record([{"messages": CHAT}])
        with pytest.raises(Unavailable, match="of package acme-broken") as broken:
            opened.create_dataset("sft", "x", trajectories=[run], outcomes=["unknown"], format="gone")
        assert (broken.value.code, broken.value.remedy) == ("extension_broken", "repair or remove the package")
    assert run_doctor(home) == 1
    assert "acme-broken" in capsys.readouterr().out


FAULTY_ENVIRONMENTS = """
from acme_boxes import Boxes, Room

class Late(Room):  # opens what it closes when a task begins
    def close(self):
        self.database.close()

class Closing(Boxes):
    def make(self):
        return Late(2)

class Unreachable(Boxes):
    def __init__(self, port: int = 1):
        raise ConnectionRefusedError(f"port {port}")

class Needy(Boxes):
    def __init__(self, path: str):
        raise AssertionError
"""


def test_an_environment_of_another_package_that_fails_is_listed_with_its_reason_and_the_others_stay(
    home: Path, install_package: Install
) -> None:
    install_template(install_package, PLUGINS / "environment")
    named = {f"faulty/{name.lower()}": f"faulty:{name}" for name in ("Closing", "Unreachable", "Needy", "Gone")}
    entries = {"quintain.environments": named | {"faulty/room": "acme_boxes:Room"}}
    install_package("acme-faulty", {"faulty": FAULTY_ENVIRONMENTS}, entries)
    tool = RLTrainingTool(home=home)
    listed = json.loads(tool.run({"action": "library", "kind": "environments"}))["items"]
    found = {item["id"]: item for item in listed}
    assert found["faulty/closing"]["tools"] == found["acme/boxes"]["tools"] == ["look"]
    reasons = {name: item["unusable"] for name, item in found.items() if "unusable" in item}
    for name, reason in {
        "faulty/unreachable": "ConnectionRefusedError: port 1",
        "faulty/needy": "path is required",
        "faulty/gone": "AttributeError",
        "faulty/room": "boxes is required",
    }.items():
        assert re.search(reason, reasons.pop(name)), name
        refused = json.loads(tool.run({"action": "evaluate", "agent": "starter", "environment": name}))
        assert refused["status"] == "error", name
        assert refused["code"] in {"environment_broken", "extension_broken", "bad_option"}, name
    assert reasons == {}


def test_a_reader_of_another_package_that_fails_is_named_in_one_line_with_the_line_of_the_log(
    home: Path, tmp_path: Path, install_package: Install
) -> None:
    """The second ticket has a reply that is no text, and the reader passes it on; pydantic states that over several lines."""
    text = (PLUGINS / "importer" / "acme_helpdesk.py").read_text(encoding="utf-8")
    entries = {"quintain.importers": {"acme_helpdesk": "acme_helpdesk:Helpdesk"}}
    install_package("acme", {"acme_helpdesk": text.replace("message=str(reply)", "message=reply")}, entries)
    log = tmp_path / "tickets.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in (TICKETS[0], {**TICKETS[0], "replies": [7]})))
    with q.open(home) as opened:
        (rejected,) = opened.import_logs(log).rejected
    assert rejected.reason.startswith(
        "the reader acme_helpdesk of package acme failed after it read line 2 (Step.message"
    )
    assert rejected.reason.isprintable()
    assert "\ufffd" not in rejected.reason


def test_a_detection_of_another_package_that_fails_is_named_with_its_reason_and_the_forced_reader_reads(
    home: Path, tmp_path: Path, install_package: Install
) -> None:
    text = (PLUGINS / "importer" / "acme_helpdesk.py").read_text(encoding="utf-8")
    entries = {"quintain.importers": {"acme_helpdesk": "acme_helpdesk:Helpdesk"}}
    install_package("acme", {"acme_helpdesk": text.replace("probe.rows", "probe.lines")}, entries)
    log = tmp_path / "tickets.jsonl"
    log.write_text(json.dumps(TICKETS[0]) + "\n")
    with q.open(home) as opened:
        for format, imported in (("auto", 0), ("acme_helpdesk", 1)):
            result = opened.import_logs(log, format=format)
            reason = "AttributeError: 'Probe' object has no attribute 'lines'"
            assert f"The reader acme_helpdesk of package acme ({reason}) failed" in " ".join(result.notes)
            assert result.imported == imported


def test_a_name_that_is_taken_is_refused_and_both_packages_are_named(home: Path, install_package: Install) -> None:
    text = (PLUGINS / "scorer" / "acme_brevity.py").read_text(encoding="utf-8")
    taken = {"short": "acme_brevity:brevity", "outcome": "acme_brevity:brevity"}
    install_package("acme-one", {"acme_brevity": text}, {"quintain.scorers": taken})
    install_package("acme-two", {}, {"quintain.scorers": {"short": "acme_brevity:brevity"}})
    with q.open(home) as opened:
        opened.record([{"messages": CHAT, "outcome": "success"}], agent="me")
        with pytest.raises(Conflict, match=r"of package acme-one and .* of package acme-two; remove one of them"):
            opened.score("short", filter={"agent": "me"})
        assert opened.score("outcome", filter={"agent": "me"}).summary.mean == 1.0, "the built-in one"
        faults = {
            item["name"]: item["broken"] for item in opened.library("scorers", limit=100).items if item.get("broken")
        }
        assert "acme-one" in faults["outcome"]
        assert "acme-two" in faults["short"]
