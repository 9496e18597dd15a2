"""Send hostile inputs to servers, judge each answer, and audit the home afterwards."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import quintain
from benchmarks.figures import report
from benchmarks.hostile.inputs import (
    ADDRESSES,
    LINES,
    METHODS,
    ROUTES,
    Address,
    Draws,
    Input,
    Line,
    Request,
    call,
    encode,
)
from benchmarks.hostile.servers import ERAS, Answer, HttpTarget, StdioTarget, Target, WebServer
from quintain.jobs.processes import try_lock, unlock
from quintain.records.filters import TrajectoryFilter
from quintain.server.calls.bindings import stored_listings
from quintain.store.database.damage import problems
from quintain.store.database.paging import read_pages
from quintain.store.store import open_store

ANSWER_S = 5.0


CANARY = "canary-51c0de"
"""Content of a file beside the home folder."""


_TRACE = re.compile(r"Traceback \(most recent call last\)|File \"[^\"]+\", line \d+|<[\w.]+ object at 0x")


_LINK = re.compile(r"https?://[\w.-]+")


_ERROR = re.compile(r"\[[a-z][a-z_0-9]*\] \S")


QUICK, FULL = 1_000, 5_000


class Finding(NamedTuple):
    """Something wrong with one answer."""

    kind: str
    target: str
    input: str
    answer: str


def text_of(given: Input) -> str:
    """Return an input as text, as a person can repeat it."""
    if isinstance(given, Request):
        return f"{given.method} {encode(given.params)}"
    if isinstance(given, Line):
        return given.content.decode("utf-8", "backslashreplace")
    return f"{given.method} {given.path} {given.body.decode('utf-8', 'backslashreplace')}"


class Checker:
    """Finds what is wrong with answers.

    Args:
        home: The home folder of the servers.
    """

    def __init__(self, home: Path) -> None:
        self._machine = (str(Path(quintain.__file__).parent), sys.prefix, sys.base_prefix + "/lib", "site-packages")
        self._home = str(home)

    def kinds(self, given: Input, answer: Answer, target: str) -> Iterator[str]:
        """Yield the kinds of what is wrong."""
        if not answer.text and answer.status is None:
            yield "unanswered"
            return
        if answer.seconds > ANSWER_S:
            yield "late"
        sent = text_of(given)
        yield from self._leaks(answer, sent, over_http=not target.startswith("stdio"))
        if (
            isinstance(given, Line | Request)
            and answer.message.get("id", answer.id) not in (answer.id, None)
            and answer.id
        ):
            yield "wrong_id"
        error = self._error(answer)
        if error is None:
            return
        if error.startswith("[internal]") or answer.status == 500:
            yield "internal"
        if (_is_ours(given) or _ERROR.match(error)) and not _has_remedy(error):
            yield "no_remedy"
        links = (link.rstrip(".") for link in _LINK.findall(error))  # an error clips a long value by dots
        yield from ("link" for link in links if link not in sent + unquote(sent) and "127.0.0.1" not in link)

    def _leaks(self, answer: Answer, sent: str, *, over_http: bool) -> Iterator[str]:
        if (found := _TRACE.search(answer.text)) and found.group() not in sent:
            yield "trace"
        if any(path in answer.text and path not in sent for path in self._machine):
            yield "path"
        if over_http and self._error(answer) is not None and self._home in answer.text and self._home not in sent:
            yield "home_path"
        if CANARY in answer.text:
            yield "canary"

    @staticmethod
    def _error(answer: Answer) -> str | None:
        """Return the text of the error that an answer is; None: it is none."""
        found = answer.message
        if isinstance(error := found.get("error"), dict):
            code = error.get("code")
            return f"[{code}] {error.get('message')}" if isinstance(code, str) else str(error.get("message"))
        result = found.get("result")
        if isinstance(result, dict) and result.get("isError"):
            return str(result["content"][0]["text"])
        return None


def _is_ours(given: Input) -> bool:
    """Whether the errors of an input are written by the product, and not by the SDK's check of the protocol."""
    return isinstance(given, Request) and given.method == "tools/call" and isinstance(given.params["arguments"], dict)


def _has_remedy(error: str) -> bool:
    """Whether an error has a code, says something, and ends with what to do."""
    return bool(_ERROR.match(error)) and "; " in error


class Trial:
    """Inputs to some targets, and what came of them."""

    def __init__(self, targets: Sequence[Target], home: Path) -> None:
        self._targets, self._checker = targets, Checker(home)
        self.inputs: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        """Kind of answer -> how many."""
        self.findings: list[Finding] = []
        self.slowest = Answer("", 0.0)
        self.slowest_input = ""
        self.fixed = 0
        """Number of fixed inputs."""

    def send(self, given: Input, targets: Sequence[Target] | None = None) -> None:
        """Send an input to one target after the other, or to those of its kind."""
        for target in targets if targets is not None else self._fitting(given):
            answer = target.ask(given)
            self.inputs[target.name] += 1
            self.answers[_outcome(answer)] += 1
            if answer.seconds > self.slowest.seconds:
                self.slowest, self.slowest_input = answer, f"{target.name}: {text_of(given)[:300]}"
            kinds = list(self._checker.kinds(given, answer, target.name))
            if not target.is_alive():
                kinds = ["death"]
                target.restart()
            self.findings += [Finding(kind, target.name, text_of(given)[:2000], answer.text[:1000]) for kind in kinds]

    def send_one(self, given: Input) -> None:
        """Send an input to the fitting target that had the fewest."""
        self.send(given, [min(self._fitting(given), key=lambda target: self.inputs[target.name])])

    def _fitting(self, given: Input) -> Sequence[Target]:
        return [target for target in self._targets if (target.name == "page") == isinstance(given, Address)]

    def count(self, kind: str) -> int:
        """Return how many findings of a kind there are."""
        return sum(finding.kind == kind for finding in self.findings)


def _outcome(answer: Answer) -> str:
    result = answer.message.get("result")
    if isinstance(result, dict):
        return "tool error" if result.get("isError") else "result"
    if "error" in answer.message:
        return "error"
    return f"HTTP {answer.status}" if answer.status else "none"


def seed_home(target: Target, home: Path) -> list[str]:
    """Store a few runs, a dataset, an agent and a job by tools. Return texts that name what is stored."""
    (home / "inbox").mkdir(exist_ok=True)
    chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    (home / "inbox" / "log.jsonl").write_text(json.dumps({"messages": chat}) + "\n")
    (home.parent / "secret.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": CANARY}]}) + "\n")
    found: set[str] = {"log.jsonl", str(home.parent / "secret.jsonl"), "../../secret.jsonl", "rules", "starter", "main"}
    steps: list[tuple[str, dict[str, Any]]] = [
        (
            "record_trajectory",
            {
                "messages": [*chat, {"role": "user", "content": f"{i}"}, *chat[1:]],
                "task": "2+2?",
                "outcome": "success" if i % 2 else "failure",
            },
        )
        for i in range(6)
    ]
    steps += [
        ("score_trajectories", {"scorer": "outcome", "filter": {"outcome": "success"}}),
        ("export_dataset", {"kind": "sft", "name": "sums", "filter": {"outcome": "success"}}),
        ("register_agent", {"name": "clerk", "model": "starter"}),
        ("get_judging_batch", {"limit": 3, "judge": "assistant"}),
        ("collect_rollouts", {"agent": "clerk", "environment": "quintain/inventory", "n_tasks": 2}),
        ("search_trajectories", {"limit": 2}),
        ("list_library", {"kind": "environments"}),
    ]
    for tool, arguments in steps:
        answer = target.ask(call(tool, arguments)).text
        if '"isError":true' in answer or '"result"' not in answer:
            raise RuntimeError(f"{tool}: {answer[:500]}")
        found |= set(re.findall(r'\\"((?:[a-z]+[-:/])[\w:./@-]{3,60})\\"', answer))
    return sorted(found)


WITNESS = {
    "messages": [{"role": "user", "content": "Remember 17."}, {"role": "assistant", "content": "17"}],
    "task": "witness",
}
"""A run whose id no input has: it must be the same at the end."""


def witness(target: Target) -> str:
    """Store the witness and return it as it is read; a second time, it is found again."""
    answer = target.ask(call("record_trajectory", WITNESS)).message
    stored = (
        answer["result"]["structuredContent"]["id"]
        if "id" in answer["result"]["structuredContent"]
        else answer["result"]["structuredContent"]["trajectory_id"]
    )
    shown = target.ask(call("get_trajectory", {"trajectory_id": stored})).message["result"]["structuredContent"]
    return json.dumps({key: value for key, value in shown.items() if key != "next_step"}, sort_keys=True)


def audit(home: Path) -> list[str]:
    """Return what is damaged in the home: the file, references between rows, records that cannot be read, half files."""
    database = home / "quintain.db"
    wrong = [f"integrity: {problem}" for problem in problems(database)]
    with closing(sqlite3.connect(database)) as connection:
        wrong += [f"orphan: {row}" for row in connection.execute("PRAGMA foreign_key_check").fetchall()[:5]]
        jobs = {row[0] for row in connection.execute("SELECT id FROM jobs")}
    folders = {path.name for path in (home / "jobs").iterdir() if path.is_dir()}
    wrong += [f"folder without a job: {name}" for name in sorted(folders - jobs)]
    store = open_store(f"sqlite:///{database}")
    readers = {
        name: getattr(store, name).page for name in ("agents", "datasets", "jobs", "preferences", "calibrations")
    }
    for name, read in {"trajectories": partial(store.trajectories.search, TrajectoryFilter()), **readers}.items():
        try:
            list(read_pages(read))
        except Exception as error:  # whatever a damaged record raises is the finding
            wrong.append(f"unreadable {name}: {error!r}"[:300])
    store.close()
    return wrong + [f"left over: {path.name}" for path in home.rglob(".*") if path.is_file()]


def run(folder: Path, generated: int, seed: int, one_in: int | None = None) -> Trial:
    """Send the inputs to new servers on a new home, print the findings, and return the trial.

    Args:
        folder: An empty folder.
        generated: Number of inputs drawn.
        seed: Of the draws.
        one_in: Send one in so many of the fixed inputs, to one target; None: send all to every fitting one.
    """
    home, log = folder / "home", folder / "log"
    home.mkdir()
    lock = try_lock(home / "jobs" / "reconcile.lock")
    if lock is None:
        raise RuntimeError("expected a new home, got one whose jobs are looked after")
    web = WebServer(home, log)
    pipes = [StdioTarget(home, era, log) for era in ERAS]
    targets: list[Target] = [*pipes, *(HttpTarget(web, era) for era in ERAS), HttpTarget(web, None)]
    trial = Trial(targets, home)
    try:
        pool, before = seed_home(pipes[0], home), witness(pipes[0])
        draws = draws_of(pool, seed)
        fixed: list[Input] = [*LINES, *ADDRESSES, *draws.fixed_calls()]
        trial.fixed = len(fixed)
        for given in fixed[:: one_in or 1]:
            if one_in is None:
                trial.send(given)
            else:
                trial.send_one(given)
        for number in range(generated):
            trial.send_one(_draw(draws, number))
        if witness(pipes[0]) != before:
            trial.findings.append(Finding("damage", "store", "the witness has changed", before))
    finally:
        for target in targets:
            target.close()
        web.close()
        unlock(lock)
    trial.findings += [Finding("damage", "store", text, "") for text in audit(home)]
    traces = log.read_text(errors="replace").count("Traceback (most recent call last)")
    trial.answers["tracebacks in the log"] = traces
    return trial


def draws_of(pool: Sequence[str], seed: int) -> Draws:
    """Return the inputs drawn for the catalog."""
    return Draws({name: listing["input_schema"] for name, listing in stored_listings().items()}, pool, seed)


def _draw(draws: Draws, number: int) -> Input:
    kind = number % 20
    if kind < 12:
        return draws.tool_call()
    if kind < 14:
        return draws.request(METHODS)
    return draws.line() if kind < 16 else draws.address(ROUTES)


def hostile_inputs(generated: int, seed: int = 0) -> int:
    """Send the fixed inputs and so many generated ones, and report the figures. Return the number of findings."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trial = run(Path(folder), generated, seed)
    for finding in trial.findings:
        print(json.dumps({"finding": finding._asdict()}), flush=True)
    report("hostile_inputs_fixed", [trial.fixed], "1", 300.0)
    report("hostile_inputs_generated", [generated], "1", float(FULL) if generated >= FULL else None)
    report(
        "hostile_inputs_sent",
        [sum(trial.inputs.values())],
        "1",
        None,
        by_target=dict(trial.inputs),
        answers=dict(trial.answers),
    )
    for name, kind in FIGURES.items():
        report(name, [trial.count(kind)], "1", 0, "lower")
    report("hostile_slowest_answer", [trial.slowest.seconds], "s", ANSWER_S, "lower", input=trial.slowest_input)
    return len(trial.findings)


FIGURES = {
    "hostile_server_deaths": "death",
    "hostile_unanswered": "unanswered",
    "hostile_late": "late",
    "hostile_errors_without_remedy": "no_remedy",
    "hostile_internal_errors": "internal",
    "hostile_traces": "trace",
    "hostile_paths_of_the_machine": "path",
    "hostile_home_paths_over_http": "home_path",
    "hostile_links_of_libraries": "link",
    "hostile_wrong_ids": "wrong_id",
    "hostile_canaries": "canary",
    "hostile_damage": "damage",
}
"""Figure -> kind of finding."""
