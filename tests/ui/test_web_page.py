"""The web page over HTTP: its addresses, its headers, its tools and tokens, hostile requests, live states of jobs."""

from __future__ import annotations

import http.client
import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

import quintain.ui
import terminal
from quintain.cli.main import command
from quintain.records.jobs.job import ImportSpec, JobStatus, SelftestSpec
from quintain.records.jobs.job_events import JobEvent
from quintain.server.calls.bindings import stored_listings
from quintain.store.job_spans import Span
from quintain.store.store import Store, open_store
from quintain.tools.catalog import CATALOG
from quintain.tools.dict_calls.facade import RLTrainingTool
from quintain.tools.web_address import page_announced
from quintain.ui.events import MAX_LISTENERS
from served_page import Site, served
from store_shelves import base_agent, job, measured, model_folder, trained, training
from trajectory_runs import NOW, call, run, user

STATIC = Path(quintain.ui.__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def event(seq: int, kind: str, **fields: object) -> JobEvent:
    return JobEvent.model_validate({"attempt": 1, "seq": seq, "time": NOW, "type": kind, **fields})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A home with an agent, its training with two phases, and a job of another home that runs."""
    home = tmp_path_factory.mktemp("home")
    store = open_store(f"sqlite:///{home / 'quintain.db'}")
    base = base_agent(store)
    job(store, "job-long", ImportSpec(path="/logs"), JobStatus.RUNNING)
    clerk = trained(store, "job-train", training(base, "ds-1"))
    phases = [event(0, "phase", name="loading_model"), event(1, "phase", name="training")]
    steps = [event(2 + i, "progress", step=i, metrics={"loss": 1.0 / i, "mean_reward": None}) for i in (1, 2)]
    store.jobs.ingest_spans([Span("job-train", "events.jsonl", 0, 9, [*phases, *steps])], NOW)
    measured(store, "eval-before", base, "job-before")
    measured(store, "eval-after", clerk, "job-after")
    job(store, "job-elsewhere", SelftestSpec(steps=7), JobStatus.RUNNING, home="another-home")
    store.jobs.finish("job-long", 1, JobStatus.SUCCEEDED, NOW + timedelta(minutes=5))
    job(store, "job-check", SelftestSpec(steps=7), now=NOW + timedelta(minutes=9))
    samples = home / "jobs" / "job-train" / "samples.jsonl"
    samples.parent.mkdir(parents=True)
    samples.write_text('{"step": 1, "prompt": "p", "text": "<script>", "tokens": NaN}\nno json\n', encoding="utf-8")
    of_stage = samples.parent / "stages" / "00-warm-up" / "samples.jsonl"
    of_stage.parent.mkdir(parents=True)
    of_stage.write_text('{"step": 2, "prompt": "p", "text": "t", "tokens": 1}\n', encoding="utf-8")
    yield store
    store.close()


@pytest.fixture(scope="module")
def site(store: Store) -> Iterator[Site]:
    with served(Path(store.url.removeprefix("sqlite:///")).parent) as site:
        yield site


def test_every_page_is_one_file_and_every_answer_has_the_policy(site: Site) -> None:
    pages = ["/", "/jobs", "/jobs/job-1", "/runs/traj-1", "/datasets/ds-1", "/agents/clerk@1", "/comparisons/cmp-1"]
    answers = [site.ask(path) for path in (*pages, "/lineage/ds-1", "/judging", "/leaderboard")]
    assert {(answer.status, answer.body) for answer in answers} == {(200, (STATIC / "index.html").read_bytes())}
    answers += [site.ask(path) for path in ("/static/app.js", "/static/none.js", "/api/none", "/none", "/api/session")]
    answers += [site.call("list_jobs", {}), site.call("none", {}), site.ask("/jobs", "DELETE")]
    assert [answer.status for answer in answers[10:]] == [200, 404, 404, 404, 200, 200, 404, 405]
    assert set(answers[-1].headers["allow"].split(", ")) == {"GET", "HEAD"}
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_the_page_has_no_inline_script_and_its_modules_import_only_files_that_exist(site: Site) -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|<script(?![^>]* src=)|\son[a-z]+=|\sstyle=", page)
    named = re.findall(r'(?:href|src)="/static/([^"]+)"', page)
    assert "app.js" in named
    assert [name for name in named if not (STATIC / name).is_file()] == []
    wanted = [
        (module.name, (module.parent / name).resolve())
        for module in [*STATIC.glob("*.js"), *STATIC.glob("views/*.js")]
        for name in re.findall(r'^import (?:[^;]*? from )?"([^"]+)";', module.read_text(encoding="utf-8"), re.M)
    ]
    assert len(wanted) > 20
    assert [(name, path) for name, path in wanted if not path.is_file()] == []


def test_reading_is_open_on_loopback_and_changing_needs_the_token(site: Site) -> None:
    assert site.ask("/api/session").json == {"may_change": False, "may_read": True}
    assert site.ask("/api/session", **site.authorization).json == {"may_change": True, "may_read": True}
    assert site.call("list_library", {"kind": "agents"}).json["items"][0]["name"] == "clerk"
    rehearsed = site.call("forget", {"id": "traj-1"})
    assert (rehearsed.status, rehearsed.json["error"]["code"]) == (404, "not_found"), "a dry run reads"
    changes = [("cancel_job", {"job_id": "job-train"}), ("forget", {"id": "traj-1", "dry_run": False})]
    changes += [
        ("forget", {"id": "traj-1", "dry_run": "true"}),
        ("talk_to_agent", {"agent": "clerk", "message": "Hello"}),
        ("annotate_job", {"job_id": "job-1", "note": "Mine."}),
        ("tag_trajectories", {"add": ["mine"], "trajectory_ids": ["traj-1"]}),
    ]
    # Reading tools that begin work with one argument.
    changes += [("compare_agents", {"agents": ["base", "clerk"], "sequential": True})]
    for tool, arguments in changes:
        refused = site.call(tool, arguments)
        assert (refused.status, refused.json["error"]["code"]) == (401, "token"), tool
    assert site.call("cancel_job", {"job_id": "job-train"}, **site.authorization).json["status"] == "succeeded"
    assert site.call("cancel_job", {"job_id": "job-train"}, Authorization="Bearer wrong").status == 401
    foreign = [site.ask("/", Host="evil.example"), site.ask("/api/session", Origin="http://evil.example")]
    assert [answer.status for answer in foreign] == [421, 403]
    assert {answer.headers["content-security-policy"] for answer in foreign} == {"default-src 'none'"}


@pytest.mark.parametrize(
    "path",
    [
        *("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd", "/static/views"),
        *("/api/jobs/..%2f..%2fquintain.db", "/api/jobs/%00", "/api/jobs/job-none", "/api/jobs/" + "a" * 9000),
        *(
            "/api/resource",
            "/api/resource?uri=file:///etc/passwd",
            "/api/resource?uri=job://none",
            "/api/tools/list_jobs",
        ),
        *("/api/figures/none", "/jobs/../../etc/passwd%00", "/%ff%fe", "/api"),
    ],
)
def test_a_hostile_address_is_refused_without_a_path_of_the_machine(site: Site, path: str) -> None:
    answer = site.ask(path)
    is_page = answer.body == (STATIC / "index.html").read_bytes()
    assert 400 <= answer.status < 500 or is_page
    assert is_page or answer.json["error"]["code"]
    for text in (str(site.home), "Traceback", "root:", str(STATIC)):
        assert text.encode() not in answer.body


def test_a_home_that_cannot_be_used_is_shown_with_its_reason_and_not_its_path(home: Path) -> None:
    with closing(sqlite3.connect(home / "quintain.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with served(home) as site:
        for answer in (site.ask("/api/overview"), site.call("list_jobs", {})):
            assert answer.json["error"]["code"] == "database_newer"
            assert "or older, got 9999, written by a newer version" in answer.json["error"]["message"]
        (home / "quintain.db").unlink()
        (home / "jobs").rename(home / "moved")
        (home / "jobs").write_text("")
        message = site.ask("/api/overview").json["error"]["message"]
    assert message.startswith("cannot create or write the home folder")
    assert str(home) not in message


def test_hostile_bodies_are_refused_by_code(site: Site) -> None:
    def code(body: bytes, tool: str = "list_jobs", kind: str = "application/json") -> str:
        answer = site.ask(f"/api/tools/{tool}", "POST", body, Content_Type=kind, **site.authorization)
        assert 400 <= answer.status < 500
        assert str(site.home).encode() not in answer.body
        return answer.json["error"]["code"]

    assert code(b"{") == code(b"[1]") == code(b"\xff") == code(b"[" * 100_000) == "invalid_input"
    assert code(b"{}", kind="text/plain") == "invalid_input"
    assert code(b'{"limit": "many"}') == code(b'{"status": 3}') == "invalid_input"
    assert code(b'{"limit": 1e400}') == "not_finite"
    assert code(b'{"status": "\\ud800"}') == "lone_surrogate"
    assert code(b'{"nothing": 1}') == "unknown_argument"
    assert code(b'{"job_id": "../../etc/passwd"}', "get_job") == "not_found"
    assert code(b'{"path": "/etc/passwd"}', "import_trajectories") == "outside_roots"
    assert code(b" " * 1_500_000) == "too_large"


def test_the_page_of_a_job_has_phases_settings_and_samples_but_no_folders(site: Site) -> None:
    page = site.ask("/api/jobs/job-train")
    assert [phase["name"] for phase in page.json["phases"]] == ["loading_model", "training"]
    assert page.json["metrics"] == ["loss", "mean_reward"]
    assert page.json["settings"]["agent"] == "agent:base@1"
    assert page.json["settings"]["dataset_id"] == "ds-1"
    assert "output_dir" not in page.json["settings"]
    assert page.json["samples"] == [
        {"step": 2, "prompt": "p", "text": "t", "tokens": 1, "stage": "00-warm-up"},
        {"step": 1, "prompt": "p", "text": "<script>", "tokens": None, "stage": ""},
    ]
    assert model_folder("base").encode() not in page.body


def test_answers_name_the_page_of_their_object_while_it_is_served(site: Site) -> None:
    assert "ui_url" not in site.call("get_job", {"job_id": "job-train"}).json
    with page_announced(site.home, f"http://127.0.0.1:{site.port}"):
        url = site.call("get_job", {"job_id": "job-train"}).json["ui_url"]
        assert url == f"http://127.0.0.1:{site.port}/jobs/job-train"
        assert "ui_url" not in site.call("list_jobs", {}).json
        calls = RLTrainingTool(site.home)
        assert json.loads(calls.run({"action": "status", "job_id": "job-train"}))["ui_url"] == url
        calls.close()
        assert f"Page: {url}\n" in terminal.quintain("jobs", "show", "job-train", home=site.home).stdout
        for command, page in (
            (("jobs", "show", "job-train"), url),
            (("show", "eval-after"), url.replace("jobs/job-train", "evaluations/eval-after")),
        ):
            printed = json.loads(terminal.quintain(*command, "--json", home=site.home).stdout)
            assert printed["ui_url"] == page
    assert site.ask(url.removeprefix(f"http://127.0.0.1:{site.port}")).status == 200


def test_the_figure_of_a_job_is_data_for_the_charts(site: Site) -> None:
    figure = site.ask("/api/resource?uri=job://job-train/figure").json["figure"]
    (line,) = next(panel["lines"] for panel in figure["panels"] if panel["title"] == "Loss")
    assert (line["x"], line["y"]) == ([1, 2], [1.0, 0.5])


def test_the_overview_puts_a_measured_agent_beside_its_parent_on_the_same_tasks(site: Site) -> None:
    found = site.ask("/api/overview").json
    newest = found["measured"][0]
    assert (newest["agent"], newest["parent"], newest["before"]["value"]) == ("agent:clerk@1", "agent:base@1", 0.5)
    assert [one["job_id"] for one in found["open"]] == ["job-elsewhere"]
    last = found["ended"][0]
    assert last["job_id"] == "job-long", (
        "it ended last, though it began first; a check of the installation does not count"
    )
    assert found["next_step"].startswith(f"After [{last['label']}](/jobs/{last['job_id']}): ")


def test_hints_and_errors_name_pages_and_commands_and_no_tool(site: Site) -> None:
    texts = [
        site.call("get_job", {"job_id": "job-train"}).json["next_step"],
        site.call("list_jobs", {}).json["next_step"],
        site.call("search_trajectories", {}).json["next_step"],
        site.call("compare_agents", {"agents": ["agent:base@1", "agent:clerk@9"]}).json["error"]["message"],
        site.call("compare_agents", {"agents": "agent:base@1"}).json["error"]["message"],
        site.ask("/api/resource?uri=job://job-none").json["error"]["message"],
        site.ask("/api/jobs/job-none").json["error"]["message"],
    ]
    names = [spec.name for spec in CATALOG if "_" in spec.name]
    assert not [(name, text) for text in texts for name in names if name in text]
    assert re.search(r"\[Follow a job\]\(/jobs/job-\w+\)", texts[1])


@pytest.mark.parametrize(("name", "argument"), [("KINDS", "kind"), ("STATES", "status")])
def test_the_page_of_jobs_offers_every_kind_and_state(name: str, argument: str) -> None:
    text = (STATIC / "views" / "jobs.js").read_text(encoding="utf-8")
    (offered,) = re.findall(rf"^const {name} = (.*);$", text, re.MULTILINE)
    schema = stored_listings()["list_jobs"]["input_schema"]["properties"][argument]
    assert sorted(json.loads(offered)) == sorted(["", *schema["enum"]])


def test_every_command_that_the_page_names_exists() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(STATIC.rglob("*.js")))
    lines = [line.split() for line in re.findall(r"`quintain ([^`]+)`", text.replace("\\`", "`"))]
    assert len(lines) >= 6
    for name, *arguments in lines:  # fails where an argument or option does not exist, or is missing
        command(name).make_context(name, arguments)


def test_a_step_that_another_process_stores_reaches_two_open_pages(site: Site, store: Store) -> None:
    def read_until(stream: http.client.HTTPResponse, step: int) -> dict[str, object]:
        while line := stream.readline():
            if line.startswith(b"data: ") and (state := json.loads(line[6:])).get("step") == step:
                return dict(state)
        raise AssertionError("the stream ended")

    connections = [http.client.HTTPConnection("127.0.0.1", site.port, timeout=100) for _ in range(2)]
    for connection in connections:
        connection.request("GET", "/api/events")
    streams = [connection.getresponse() for connection in connections]
    assert {stream.headers["content-type"] for stream in streams} == {"text/event-stream; charset=utf-8"}
    assert [read_until(stream, 0)["job_id"] for stream in streams] == ["job-elsewhere"] * 2
    progress = event(0, "progress", step=3, total_steps=7, metrics={"loss": 0.5})
    stored = threading.Thread(
        target=store.jobs.ingest_spans, args=([Span("job-elsewhere", "events.jsonl", 0, 9, [progress])], NOW)
    )
    stored.start()
    states = [read_until(stream, 3) for stream in streams]
    stored.join()
    for open_one in (*streams, *connections):
        open_one.close()
    assert states[0] == states[1]
    assert (states[0]["status"], states[0]["total_steps"], states[0]["metrics"]) == ("running", 7, {"loss": 0.5})
    assert (states[0]["started_at"], states[0]["ended_at"]) == (NOW.isoformat().replace("+00:00", "Z"), None)
    assert MAX_LISTENERS >= 2


def test_verdicts_of_the_page_need_the_token_and_are_the_person_s_own_words(home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'quintain.db'}")
    (stored,) = store.trajectories.add_many(
        [run("t1", user("word " * 700), call(item="word " * 350 + "midway" + " word" * 350))], NOW
    )
    with served(home) as site:
        wanted = {"judge": "person", "rater": "Ada", "limit": 3}
        assert site.call("get_judging_batch", wanted).status == 401
        batch = site.call("get_judging_batch", wanted, **site.authorization).json
        answer = {"item_id": batch["items"][0]["item_id"], "scores": {"task_completion": 1, "process": 0.5}}
        verdict = {"batch_id": batch["batch_id"], "scores": [{**answer, "rationale": "Fine."}]}
        assert site.call("submit_scores", verdict).status == 401
        assert site.call("submit_scores", verdict, **site.authorization).json["accepted"] == 1
        again = site.ask(f"/api/resource?uri={quote('judging://' + batch['batch_id'], safe='')}").json
        unknown = site.ask("/api/resource?uri=judging%3A%2F%2Fbatch-nothing")
        (score,) = store.scores.of_trajectory(stored.id)
        of_item = f"/api/judging/{batch['batch_id']}/{answer['item_id']}"
        assert site.ask(of_item, "POST").status == 401
        longer = site.ask(of_item, "POST", **site.authorization).json["text"]
        missing = site.ask(f"/api/judging/{batch['batch_id']}/i9", "POST", **site.authorization)
        assert site.call("submit_scores", verdict, **site.authorization).json["accepted"] == 1
        (informed,) = store.scores.current_of(stored.id)
    store.close()
    assert score.rater == "person:Ada"
    assert informed.feedback == "Fine.", "after the whole run was shown"
    assert score.feedback == (words := "Fine. [shortened] The judge saw long texts cut.")
    assert again["answered"] == {answer["item_id"]: {"scores": answer["scores"], "rationale": words, "skipped": False}}
    assert again["items"] == batch["items"]
    assert unknown.status == missing.status == 404
    assert again["shortened"] == [answer["item_id"]]
    assert ("midway" in batch["items"][0]["text"], "midway" in longer) == (False, True)
