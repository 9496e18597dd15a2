"""A person as judge through a real client: forms in both eras, text where there are none, and states that nobody can forge."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from mcp_client import call
from quintain.errors import Unavailable
from quintain.records.trajectory import OutcomeStatus
from quintain.server.app import create_server
from quintain.server.elicitation import key_of_home
from quintain.settings import Settings
from quintain.tools.services import Services
from server.talks import ACCEPTED, ASK, ERAS, FILLED, Person, asked, listening, round_of, serve
from trajectory_runs import NOW, run


def stored_ids(services: Services) -> list[str]:
    return [one.id or "" for one in services.store.trajectories.iterate()]


def values(services: Services) -> list[float | None]:
    """Return the values that people gave."""
    found = services.store.scores.by_scorers(["people"], stored_ids(services))
    return [score.value for scores in found.values() for score in scores]


@ERAS
def test_a_person_is_asked_in_forms_of_text_choices_and_every_answer_is_kept(
    settings: Settings, services: Services, mode: str
) -> None:
    person = Person(*[FILLED | {"outcome": "success"}] * 3)
    (result,) = round_of(settings, person, mode)
    assert (result["submitted"]["accepted"], result["submitted"]["remaining"], result["items"]) == (3, [], [])
    assert "All answered" in result["next_step"]
    assert values(services) == [pytest.approx(0.7)] * 3
    assert [params.message[:7] for params in person.seen] == ["1 of 3.", "2 of 3.", "3 of 3."]
    schema = person.seen[0].requested_schema
    assert schema["required"] == ["score_task_completion", "score_process"]
    assert {line["type"] for line in schema["properties"].values()} == {"string"}
    assert schema["properties"]["score_process"]["enum"] == ["1", "2", "3", "4", "5", "cannot tell"]
    assert not any(run_id in params.message for params in person.seen for run_id in stored_ids(services))
    assert {one.outcome.status for one in services.store.trajectories.iterate()} == {OutcomeStatus.SUCCESS}


@ERAS
def test_without_forms_the_items_come_back_as_text_for_the_assistant_to_show(
    settings: Settings, services: Services, mode: str
) -> None:
    async def talk(client: Client) -> dict[str, Any]:
        batch = await call(client, "get_judging_batch", **ASK)
        assert "Show the person each item" in batch["next_step"]
        assert batch["rubric"]["criteria"]
        entries = [{"item_id": item["item_id"], "value": 0.5} for item in batch["items"]]
        return await call(client, "submit_scores", batch_id=batch["batch_id"], scores=entries)

    assert serve(create_server(settings), mode, talk)["accepted"] == 3
    assert values(services) == [0.5] * 3


@pytest.mark.usefixtures("services")
def test_the_assistant_judges_through_the_same_tools_and_is_asked_nothing(settings: Settings) -> None:
    person = Person()

    async def talk(client: Client) -> dict[str, Any]:
        batch = await call(client, "get_judging_batch", limit=3)
        scores = {"task_completion": 1, "process": 0}
        entries = [{"item_id": item["item_id"], "scores": scores} for item in batch["items"]]
        entries[1]["scores"] = {"task_completion": "great"}
        return await call(client, "submit_scores", batch_id=batch["batch_id"], scores=entries)

    result = serve(create_server(settings), "auto", talk, elicitation_callback=person)
    assert (result["accepted"], [one["item_id"] for one in result["rejected"]]) == (2, ["i2"])
    assert person.seen == []


def test_a_person_is_asked_no_more_often_than_clients_allow(settings: Settings, services: Services) -> None:
    services.store.trajectories.add_many([run(f"more{n}") for n in range(9)], NOW)
    person = Person(*[{"score_task_completion": "3", "score_process": "3"}] * 12)
    assert round_of(settings, person, "auto", limit=12)[0]["submitted"]["accepted"] == 8


def test_servers_on_one_home_share_a_round_in_processes_and_eras_of_their_own(
    settings: Settings, services: Services
) -> None:
    """The first question comes from one process; the answers go to another, and the rest to one of the handshake era."""
    http = ("-m", "quintain.cli.main", "serve", "--transport", "http", "--no-token", "--port", "0", "--json")

    async def batch(client: Client) -> dict[str, Any]:
        return await call(client, "get_judging_batch", **ASK | {"rater": "bob"})

    with listening(*http, "--home", str(settings.home)) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        first = serve(url, "auto", asked, elicitation_callback=Person())
        over_http = serve(url, "legacy", batch, elicitation_callback=Person(FILLED))
    over_legacy = serve(create_server(settings), "legacy", batch, elicitation_callback=Person(FILLED))

    async def answers(client: Client) -> Any:
        second = await asked(client, input_responses=ACCEPTED, request_state=first.request_state)
        # The same call once more, as after a lost answer: nothing is taken twice.
        again = await asked(client, input_responses=ACCEPTED, request_state=first.request_state)
        assert again.input_requests == second.input_requests
        return second

    second = serve(create_server(settings), "auto", answers, elicitation_callback=Person())
    assert second.input_requests["answer"].params.message.startswith("2 of 3.")
    assert [one["submitted"]["accepted"] for one in (over_http, over_legacy)] == [1, 1]
    assert values(services) == [pytest.approx(0.7)] * 3
    assert stat.S_IMODE((settings.home / "state.key").stat().st_mode) == 0o600


def test_a_state_can_be_neither_read_nor_forged_nor_used_for_another_call(
    settings: Settings, services: Services, tmp_path: Path
) -> None:
    async def refused(client: Client, **more: Any) -> str:
        with pytest.raises(MCPError) as raised:
            await asked(client, input_responses=ACCEPTED, **more)
        return raised.value.error.message

    async def talk(client: Client) -> str:
        first = await asked(client)
        again = await asked(client, request_state=first.request_state)
        assert again.input_requests == first.input_requests, "a round without an answer asks the same again"
        state = first.request_state
        assert not any(words in state for words in ("batch", *stored_ids(services)))
        forged = state[:-6] + ("A" * 6 if state[-6:] != "A" * 6 else "B" * 6)
        for words in (
            await refused(client, request_state=forged),
            await refused(client, request_state='{"batch": "batch-1", "item": "i1", "done": {}}'),
            await refused(client, request_state=state, arguments={"limit": 2, "rater": "bob"}),
        ):
            assert words == "Invalid or expired requestState"
        return str(state)

    state = serve(create_server(settings), "auto", talk, elicitation_callback=Person())

    async def elsewhere(client: Client) -> str:
        return await refused(client, request_state=state)

    stranger = create_server(Settings(home=tmp_path / "elsewhere"))
    words = serve(stranger, "auto", elsewhere, elicitation_callback=Person())
    assert words == "Invalid or expired requestState"
    assert values(services) == []


def test_a_key_is_made_once_and_a_broken_one_is_refused(home: Path) -> None:
    assert key_of_home(home) == key_of_home(home)
    assert sorted(path.name for path in home.iterdir()) == ["quintain.db", "state.key"]
    (home / "state.key").write_bytes(b"short")
    with pytest.raises(Unavailable, match=r"expected a key of 32 bytes in .*, got 5; delete the file"):
        key_of_home(home)
