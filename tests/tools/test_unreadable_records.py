"""One record that this version cannot read, damaged or of a newer one: the lists show the others, and name it."""

from __future__ import annotations

import pytest
from sqlalchemy import Table, update

from quintain.cli.commands.doctor import _kept
from quintain.client.home import Home
from quintain.errors import Conflict, Unavailable
from quintain.store.database import tables
from quintain.store.database.engine import write_transaction
from quintain.tools.data.forgetting import forget
from quintain.tools.data.library import list_library
from quintain.tools.data.lineage import get_lineage
from quintain.tools.evaluation.leaderboard import environment_leaderboard
from quintain.tools.services import Services
from quintain.ui.overview import overview
from store_shelves import base_agent, compared, measured, trained, training
from tools.stored_records import add_runs, freeze_runs
from trajectory_runs import run


def damage(services: Services, table: Table, record_id: str) -> None:
    with write_transaction(services.store.engine) as connection:
        cut = update(table).where(table.c.id == record_id).values(document='{"id": "' + record_id)
        assert connection.execute(cut).rowcount == 1


@pytest.mark.filterwarnings("always:left out")
def test_a_list_shows_the_other_records_and_names_the_unreadable_one(
    services: Services, recwarn: pytest.WarningsRecorder
) -> None:
    store = services.store
    first, second = (freeze_runs(services, run(name), name=name) for name in ("one", "two"))
    base = base_agent(store)
    clerk = trained(store, "job-train", training(base, second))
    other = trained(store, "job-other", training(base, first))
    results = [measured(store, f"eval-{agent.name}-{n}", agent, f"job-{n}") for n, agent in enumerate((base, clerk))]
    results.append(measured(store, "eval-more", base, "job-more"))
    pairs = [compared(store, f"cmp-{n}", results[0], one).id for n, one in enumerate(results[1:])]
    cases = [
        ("datasets", tables.datasets, second, {first}),
        ("comparisons", tables.comparisons, pairs[1], {pairs[0]}),
        ("evaluations", tables.evaluations, "eval-more", {one.id for one in results[:2]}),
        ("agents", tables.agents, clerk.id or "", {base.id, other.id}),
    ]
    with Home(services.settings.home) as home:
        for kind, table, damaged, left in cases:
            damage(services, table, damaged)
            listed = list_library(services, kind)
            assert (listed.unreadable, {item["id"] for item in listed.items}) == ((damaged,), left)
            assert listed.next_step.startswith(f"Left out {damaged}, which this version cannot read; upgrade")
            assert {one.id for one in getattr(home, kind)()} == left
    assert [str(one.message).partition(",")[0] for one in recwarn] == [
        f"left out {damaged}" for *_, damaged, _ in cases
    ]
    (note,) = [item["note"] for item in list_library(services, "agents").items if item["id"] == base.id]
    assert "Its results are unknown: expected a stored eval-more " in note
    board = environment_leaderboard(services, "e")
    assert {row.evaluation_id for row in board.rows} == {one.id for one in results[:2]}
    assert "Left out eval-more, which this version cannot read" in board.notes[0]
    nodes = get_lineage(services, "job-train")
    assert {node.id: node.label for node in (*nodes.ancestors, *nodes.descendants)}[second] == "unreadable"
    assert overview(services, str)["measured"]
    with pytest.raises(Conflict, match=rf"record_unreadable.*{clerk.id}, which"):
        forget(services, ended_days=0)  # it cannot tell which files the agent uses
    with pytest.raises(Unavailable, match=f"the records of {second}, {clerk.id}, which this version cannot read"):
        _kept(services)


def test_a_damaged_run_can_be_forgotten_and_an_export_names_it(services: Services) -> None:
    gone, kept = add_runs(services, run("one"), run("two"))
    damage(services, tables.trajectories, gone)
    with pytest.raises(Conflict, match=rf"record_unreadable.*{gone}"):
        list(services.store.trajectories.iterate())
    assert forget(services, gone, dry_run=False).runs == 1
    assert [one.id for one in services.store.trajectories.iterate()] == [kept]
