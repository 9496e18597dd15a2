"""Jobs in the store: guarded moves, idempotent ingestion, what the row shows, the pace by hand."""

from __future__ import annotations

import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.event import listens_for

from quintain.errors import Conflict, NotFound
from quintain.records.agent import Agent, ModelRef
from quintain.records.hyperparameters.methods import SFTConfig
from quintain.records.jobs.job import Job, JobError, JobResult, JobStatus, SelftestSpec
from quintain.records.jobs.job_events import Activity, JobEvent
from quintain.store.database.paging import encode_cursor
from quintain.store.job_rows import pace_of
from quintain.store.job_spans import Lease, Span
from quintain.store.jobs import SlotLimit
from quintain.store.store import Store
from store_shelves import queued, training

MOMENT = datetime(2026, 1, 2, tzinfo=UTC)
LATER = MOMENT + timedelta(seconds=1)


def job(number: int, key: str | None = None, priority: int = 0) -> Job:
    name, spec = f"job-{number:010x}", SelftestSpec(steps=number)
    return queued(name, spec, MOMENT, request_key=key or str(number), priority=priority)


def event(seq: int, type: str, attempt: int = 1, after_s: float = 0, **fields: object) -> JobEvent:
    time = MOMENT + timedelta(seconds=after_s)
    return JobEvent.model_validate({"attempt": attempt, "seq": seq, "time": time, "type": type, **fields})


def running(store: Store, number: int = 1) -> str:
    inserted = store.jobs.insert(job(number)).job
    assert store.jobs.begin_attempt(inserted.id, 0, 1, MOMENT)
    return inserted.id


def test_a_job_comes_back_as_it_went_in(store: Store) -> None:
    assert store.jobs.insert(job(1)) == (job(1), False)
    assert store.jobs.get(job(1).id) == job(1)
    with pytest.raises(NotFound, match=f"newest are {job(1).id}"):
        store.jobs.get("job-x")


def test_a_job_is_read_whose_settings_this_version_refuses_together(store: Store) -> None:
    agent = Agent(name="base", model=ModelRef(source="starter", path="starter"))
    config = SFTConfig().model_copy(update={"decay_steps": 5})  # of a schedule that it does not have
    stored = queued("job-1", training(agent, "ds-1").model_copy(update={"config": config}), MOMENT)
    assert [*config.conflicts()]
    assert store.jobs.insert(stored).job == store.jobs.get("job-1") == store.jobs.page().items[0] == stored


def test_threads_that_insert_the_same_request_get_the_same_job(store: Store) -> None:
    found = []
    barrier = threading.Barrier(6)

    def insert(number: int) -> None:
        barrier.wait()
        found.append(store.jobs.insert(job(number, key="same")))

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({inserted.job.id for inserted in found}) == 1
    assert sorted(inserted.deduplicated for inserted in found) == [False] + [True] * 5


def test_a_move_applies_only_in_its_state_and_attempt(store: Store) -> None:
    job_id = running(store)
    assert not store.jobs.begin_attempt(job_id, 0, 1, LATER)
    assert not store.jobs.finish(job_id, 2, JobStatus.FAILED, LATER)
    assert store.jobs.begin_attempt(job_id, 1, 2, LATER)
    assert not store.jobs.finish(job_id, 1, JobStatus.SUCCEEDED, LATER)
    assert store.jobs.finish(job_id, 2, JobStatus.SUCCEEDED, LATER, result=JobResult(n=3))
    assert not store.jobs.finish(job_id, 2, JobStatus.FAILED, LATER, error=JobError(code="late", message="late"))
    done = store.jobs.get(job_id)
    assert (done.status, done.attempt, done.result, done.error) == (JobStatus.SUCCEEDED, 2, JobResult(n=3), None)
    assert (done.started_at, done.ended_at) == (MOMENT, LATER)


def test_startable_jobs_come_by_priority_then_age_while_slots_are_free(store: Store) -> None:
    for new in (job(1), job(2), job(3, priority=5), job(4)):
        store.jobs.insert(new)
    heavy: frozenset[str] = frozenset()
    assert [found.id for found in store.jobs.startable(3, heavy)] == [job(3).id, job(1).id, job(2).id]
    store.jobs.put_first(job(4).id, MOMENT)
    assert [found.id for found in store.jobs.startable(2, heavy)] == [job(4).id, job(3).id]
    store.jobs.begin_attempt(job(4).id, 0, 1, MOMENT)
    store.jobs.begin_attempt(job(3).id, 0, 1, MOMENT)
    assert [found.id for found in store.jobs.startable(3, heavy)] == [job(1).id]
    assert store.jobs.startable(2, heavy) == []
    assert len(store.jobs.startable(0, frozenset({"selftest"}))) == 2


def test_jobs_without_a_slot_are_bounded_too_and_a_full_queue_takes_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One assistant can start light jobs without end: each is a process."""
    monkeypatch.setattr("quintain.store.jobs.LIGHT_AT_ONCE", 2)
    monkeypatch.setattr("quintain.store.jobs.MOST_QUEUED", 4)
    light = frozenset({"selftest"})
    for number in range(4):
        store.jobs.insert(job(number))
    with pytest.raises(Conflict, match=r"\[queue_full\].*cancel those"):
        store.jobs.insert(job(4))
    assert store.jobs.insert(job(3)).deduplicated
    assert [found.id for found in store.jobs.startable(9, light)] == [job(0).id, job(1).id]
    for number in (0, 1, 2):
        begun = store.jobs.begin_attempt(job(number).id, 0, 1, MOMENT, slots=SlotLimit(9, light))
        assert begun == (number < 2)
    assert store.jobs.startable(9, light) == []
    assert not store.jobs.insert(job(4)).deduplicated


def test_a_home_starts_only_its_own_jobs_and_one_home_wins_a_job_of_an_earlier_version(store: Store) -> None:
    mine, other, old = (
        store.jobs.insert(job(number).model_copy(update={"home": home})).job.id
        for number, home in ((1, "mine"), (2, "other"), (3, None))
    )
    assert [found.id for found in store.jobs.startable(5, frozenset(), "mine")] == [mine, old]
    assert [found.id for found in store.jobs.startable(5, frozenset(), "other")] == [other, old]
    assert store.jobs.begin_attempt(old, 0, 1, MOMENT, home="other", lease_until=LATER)
    assert not store.jobs.begin_attempt(old, 0, 1, MOMENT, home="mine")
    assert [found.id for found in store.jobs.running("other")] == [old]
    assert store.jobs.running("mine") == []
    assert (store.jobs.get(old).home, store.jobs.get(old).lease_until) == ("other", LATER)
    assert store.jobs.startable(1, frozenset(), "other") == [], "the slot of this home is taken"
    assert len(store.jobs.startable(1, frozenset(), "mine")) == 1, "slots of other homes do not count"


def test_a_lease_belongs_to_its_attempt_and_an_attempt_that_could_not_begin_goes_back_to_the_queue(
    store: Store,
) -> None:
    job_id = running(store)
    store.jobs.ingest_spans((), MOMENT, [Lease(job_id, 2, LATER)])
    assert store.jobs.get(job_id).lease_until is None, "the lease of another attempt"
    store.jobs.ingest_spans((), MOMENT, [Lease(job_id, 1, LATER)])
    assert store.jobs.get(job_id).lease_until == LATER
    assert store.jobs.put_back(job_id, 1, 0, LATER, "launcher_unavailable: no answer")
    assert not store.jobs.put_back(job_id, 1, 0, LATER, "launcher_unavailable: no answer")
    waiting = store.jobs.get(job_id)
    assert (waiting.status, waiting.attempt, waiting.lease_until) == (JobStatus.QUEUED, 0, None)
    assert waiting.warnings == ("launcher_unavailable: no answer",)
    store.jobs.ingest_spans((), MOMENT, [Lease(job_id, 0, LATER)])
    assert store.jobs.get(job_id).lease_until is None


def test_the_row_follows_the_events_and_a_second_reading_adds_nothing(store: Store) -> None:
    job_id = running(store)
    events = [
        event(0, "phase", name="training"),
        event(1, "progress", step=1, total_steps=4, metrics={"loss": 2.0, "eval": 0.5}),
        event(2, "progress", step=2, total_steps=4, metrics={"loss": None}),
        event(3, "warning", code="cut", message="2 rows"),
        event(4, "warning", code="cut", message="2 rows"),
    ]
    assert store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 100, events)], LATER)
    assert not store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 100, events)], LATER)
    assert store.jobs.ingest_spans([Span(job_id, "events.jsonl", 100, 200, events[-1:])], LATER)
    shown = store.jobs.get(job_id)
    assert (shown.phase, shown.step, shown.total_steps) == ("training", 2, 4)
    assert shown.metrics == {"loss": None, "eval": 0.5}
    assert shown.warnings == ("cut: 2 rows",)
    assert store.jobs.events(job_id) == events
    assert store.jobs.events(job_id, type="phase") == events[:1]
    assert store.jobs.offsets(job_id) == {"events.jsonl": 200}


def test_of_many_warnings_the_first_and_the_newest_stay_and_a_line_between_says_so(store: Store) -> None:
    job_id = running(store)
    for part in range(3):  # the second reading goes on with what the first has left out
        cut = [event(seq, "warning", code="cut", message=str(seq)) for seq in range(40 * part, 40 * (part + 1))]
        store.jobs.ingest_spans([Span(job_id, "events.jsonl", part, part + 1, cut)], LATER)
    kept = store.jobs.get(job_id).warnings
    assert kept[:25] == tuple(f"cut: {seq}" for seq in range(25))
    assert kept[25].startswith("more_warnings: ")
    assert kept[26:] == tuple(f"cut: {seq}" for seq in range(96, 120))


def test_the_newest_attempt_has_the_last_word_on_a_step(store: Store) -> None:
    job_id = running(store)
    steps = [event(seq, "progress", step=seq + 1, total_steps=4, metrics={"loss": 1.0}) for seq in range(3)]
    steps += [event(seq, "progress", 2, step=seq + 2, total_steps=4, metrics={"loss": 0.5}) for seq in range(3)]
    store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 1, steps)], MOMENT)
    assert [(found.step, found.attempt) for found in store.jobs.progress(job_id)] == [(1, 1), (2, 2), (3, 2), (4, 2)]


def test_the_time_left_is_the_rate_of_this_attempt_and_null_until_known(store: Store) -> None:
    """Steps 2, 4, 6 at 10, 14, 18 s: 2 s a step; 10 - 6 = 4 steps are left, so 8 s. A new attempt knows nothing yet."""
    job_id = running(store)
    assert store.jobs.get(job_id).eta_s is None
    events = [event(n, "progress", step=2 * (n + 1), total_steps=10, after_s=10 + 4 * n) for n in range(3)]
    store.jobs.ingest_spans([Span(job_id, "events.jsonl", 0, 1, events[:1])], MOMENT)
    assert store.jobs.get(job_id).eta_s is None
    store.jobs.ingest_spans([Span(job_id, "events.jsonl", 1, 2, events[1:])], MOMENT)
    assert store.jobs.get(job_id).eta_s == 8.0
    store.jobs.begin_attempt(job_id, 1, 2, MOMENT)
    assert store.jobs.get(job_id).eta_s is None
    store.jobs.finish(job_id, 2, JobStatus.SUCCEEDED, MOMENT)
    assert store.jobs.get(job_id).eta_s is None


def test_cancel_ends_what_waits_and_marks_what_runs(store: Store) -> None:
    waiting = store.jobs.insert(job(1)).job.id
    assert store.jobs.request_cancel(waiting, LATER).status is JobStatus.CANCELLED
    active = running(store, 2)
    asked = store.jobs.request_cancel(active, LATER)
    assert (asked.status, asked.cancel_requested) == (JobStatus.RUNNING, True)
    store.jobs.finish(active, 1, JobStatus.SUCCEEDED, LATER)
    assert store.jobs.request_cancel(active, LATER).status is JobStatus.SUCCEEDED


def test_requeue_takes_only_an_interrupted_job_without_a_twin(store: Store) -> None:
    job_id = running(store)
    with pytest.raises(Conflict, match="is running"):
        store.jobs.requeue(job_id, LATER)
    store.jobs.finish(job_id, 1, JobStatus.INTERRUPTED, LATER, error=JobError(code="killed", message="killed"))
    twin = store.jobs.insert(job(2, key="1")).job
    with pytest.raises(Conflict, match=twin.id):
        store.jobs.requeue(job_id, LATER)
    store.jobs.request_cancel(twin.id, LATER)
    again = store.jobs.requeue(job_id, LATER)
    assert (again.status, again.attempt, again.max_attempts, again.error) == (JobStatus.QUEUED, 1, 5, None)
    store.jobs.finish(job_id, 1, JobStatus.FAILED, LATER)
    with pytest.raises(Conflict, match="is failed"):
        store.jobs.requeue(job_id, LATER)


def test_pages_are_newest_first_and_filtered(store: Store) -> None:
    for number in range(1, 6):
        store.jobs.insert(job(number))
    store.jobs.request_cancel(job(3).id, LATER)
    first = store.jobs.page(status=JobStatus.QUEUED, limit=2)
    assert [found.id for found in first.items] == [job(5).id, job(4).id]
    rest = store.jobs.page(status=JobStatus.QUEUED, limit=2, cursor=first.next_cursor)
    assert [found.id for found in rest.items] == [job(2).id, job(1).id]
    assert rest.next_cursor is None
    assert store.jobs.page(kind="train").items == ()
    assert [found.id for found in store.jobs.unfinished()] == [job(n).id for n in (1, 2, 4, 5)]


@pytest.mark.usefixtures("sqlite_only")
def test_pages_by_state_kind_and_both_follow_an_index(store: Store) -> None:
    plans: list[str] = []

    @listens_for(store.engine, "before_cursor_execute")
    def explain(_connection: object, cursor: sqlite3.Cursor, statement: str, values: object, *_: object) -> None:
        if statement.startswith("SELECT jobs.seq"):
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", values)
            plans.append(" ".join(row[3] for row in cursor.fetchall()))

    failed = JobStatus.FAILED
    for filters in ({"status": failed}, {"kind": "import"}, {"status": failed, "kind": "import"}):
        store.jobs.page(**filters, cursor=encode_cursor(9, "jobs"))
    assert ["SEARCH jobs USING INDEX" in plan and "TEMP" not in plan for plan in plans] == [True] * 3, plans
    assert "kind=? AND status=?" in plans[2]


def test_states_are_those_of_the_unfinished_jobs_or_of_the_named_ones(store: Store) -> None:
    first, second = running(store, 1), store.jobs.insert(job(2)).job.id
    assert {job_id: state.status for job_id, state in store.jobs.states().items()} == {
        first: "running",
        second: "queued",
    }
    before = store.jobs.states([first])
    store.jobs.ingest_spans([Span(first, "events.jsonl", 0, 1, [event(0, "progress", step=1, total_steps=2)])], LATER)
    assert store.jobs.states([first]) != before
    store.jobs.finish(first, 1, JobStatus.SUCCEEDED, LATER)
    assert list(store.jobs.states()) == [second]
    assert store.jobs.states([first, "job-x"])[first].status == "succeeded"
    assert [found.id for found in store.jobs.get_many([second, first, "job-x"])] == [first, second]


def at(*events: tuple[float, str, dict[str, Any]]) -> list[JobEvent]:
    """Events at these seconds."""
    return [
        JobEvent(attempt=1, seq=n, time=MOMENT + timedelta(seconds=s), type=kind, **fields)  # type: ignore[arg-type]
        for n, (s, kind, fields) in enumerate(events)
    ]


def step(s: float, n: int) -> tuple[float, str, dict[str, Any]]:
    return s, "progress", {"step": n, "total_steps": 100}


def phase(s: float, name: str) -> tuple[float, str, dict[str, Any]]:
    return s, "phase", {"name": name}


def test_the_usual_gap_is_that_of_steady_steps_and_of_the_pause_between_bursts() -> None:
    steady = pace_of(at(phase(0, "training"), *(step(2.0 * n, n) for n in range(1, 9))), "train")
    assert steady.usual_gap_s == 2.0
    assert steady.last_progress_at == MOMENT + timedelta(seconds=16)
    bursts = [step(60.0 * (n // 4), n) for n in range(12)]
    assert pace_of(at(*bursts), "evaluate").usual_gap_s == 60.0, "four at 0, four at 60 s, four at 120 s"


def test_a_phase_is_compared_with_itself_alone() -> None:
    acting = [phase(0, "acting"), (30, "activity", {}), (60, "activity", {})]
    training = [phase(61, "training"), step(63, 1), step(65, 2)]
    assert pace_of(at(*acting, *training), "train").usual_gap_s == 2.0
    assert pace_of(at(*acting, *training, phase(66, "acting")), "train").usual_gap_s == 30.0
    assert pace_of(at(*acting, *training, phase(66, "saving")), "train").usual_gap_s is None


@pytest.mark.parametrize(("kind", "eta_s"), [("evaluate", 42.0), ("train", 194.0)])
def test_the_time_left_of_an_evaluation_follows_its_turns_and_of_a_training_its_steps(kind: str, eta_s: float) -> None:
    """Steps 1 and 3 at 2 and 6 s: 2 s a step, 97 left."""
    turns = Activity(episodes=3, planned=100, turns=9, expected_turns=300, left_s=42.0)
    pace = pace_of(at(step(2, 1), step(6, 3), (7, "activity", {"activity": turns})), kind)
    assert (pace.eta_s, pace.activity) == (eta_s, turns)
    assert pace_of(at(step(9, 1), step(6, 3)), "train").eta_s is None, "after the clock was set back, not 0 s"


def test_the_episodes_of_a_batch_end_at_once_and_are_no_pace() -> None:
    turns = Activity(episodes=0, planned=100, turns=9, expected_turns=300, left_s=42.0)
    batch = [step(7, n) for n in range(1, 33)]
    assert pace_of(at((6, "activity", {"activity": turns}), *batch), "rollout").eta_s == 42.0
    assert pace_of(at(*batch), "rollout").eta_s is None
    assert pace_of([], "rollout") == (None, None, None, None)
