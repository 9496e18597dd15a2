"""A person as judge through a real client: forms in both eras, text where there are none, and states that nobody can forge."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import ElicitRequestFormParams, ElicitResult, InputRequiredResult

from mcp_client import call, server
from quintain.errors import Unavailable
from quintain.records.trajectory import OutcomeStatus
from quintain.server.app import create_server
from quintain.server.elicitation import key_of_home
from quintain.settings import Settings
from quintain.tools.services import open_services
from server.test_server_http import listening
from trajectory_runs import NOW, answer, run, user

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])
ASK: dict[str, Any] = {"limit": 3, "judge": "person", "rater": "ann"}
FILLED = {"score_task_completion": "5", "score_process": "2", "outcome": "success"}


class Person:
    """Somebody in front of a client: fills forms with what is prepared, then does what `afterwards` says."""

    def __init__(self, *filled: dict[str, Any], afterwards: str = "decline") -> None:
        self.filled = list(filled)
        self.afterwards = afterwards
        self.seen: list[ElicitRequestFormParams] = []

    async def __call__(self, context: Any, params: ElicitRequestFormParams) -> ElicitResult:
        self.seen.append(params)
        if self.filled:
            return ElicitResult(action="accept", content=self.filled.pop(0))
        if self.afterwards == "break":
            raise MCPError(-32603, "no form today")
        return ElicitResult(action=self.afterwards)  # type: ignore[arg-type]


@pytest.fixture
def ids(settings: Settings) -> list[str]:
    """Three runs of unknown outcome on the home folder."""
    services = open_services(settings)
    runs = [run(f"t{n}", user(), answer(f"Answer {n}."), status=OutcomeStatus.UNKNOWN) for n in range(3)]
    added = services.store.trajectories.add_many(runs, NOW)
    services.close()
    return [one.id for one in added]


def people(settings: Settings, ids: list[str]) -> list[float | None]:
    """Values that people gave these runs."""
    services = open_services(settings)
    found = services.store.scores.by_scorers(["people"], ids)
    services.close()
    return [score.value for scores in found.values() for score in scores]


@ERAS
def test_a_person_is_asked_in_forms_of_text_choices_and_every_answer_is_kept(
    settings: Settings, ids: list[str], mode: str
) -> None:
    person = Person(FILLED, FILLED, FILLED)

    async def main() -> dict[str, Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), mode=mode, elicitation_callback=person) as client:
                return await call(client, "get_judging_batch", **ASK)

    result = anyio.run(main)
    assert (result["submitted"]["accepted"], result["submitted"]["remaining"], result["items"]) == (3, [], [])
    assert "All 3 items answered" in result["next_step"]
    assert people(settings, ids) == [pytest.approx(0.7)] * 3
    assert [params.message[:7] for params in person.seen] == ["1 of 3.", "2 of 3.", "3 of 3."]
    schema = person.seen[0].requested_schema
    assert schema["required"] == ["score_task_completion", "score_process"]
    assert {line["type"] for line in schema["properties"].values()} == {"string"}
    assert schema["properties"]["score_process"]["enum"] == ["1", "2", "3", "4", "5", "cannot tell"]
    assert not any(run_id in params.message for params in person.seen for run_id in ids)
    services = open_services(settings)
    assert {services.store.trajectories.get(run_id).outcome.status for run_id in ids} == {OutcomeStatus.SUCCESS}
    services.close()


@pytest.mark.parametrize(("mode", "afterwards"), [("auto", "decline"), ("legacy", "cancel")])
def test_a_person_who_stops_keeps_what_was_answered(
    settings: Settings, ids: list[str], mode: str, afterwards: str
) -> None:
    person = Person(FILLED, afterwards=afterwards)

    async def main() -> dict[str, Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), mode=mode, elicitation_callback=person) as client:
                return await call(client, "get_judging_batch", **ASK)

    result = anyio.run(main)
    assert (result["submitted"]["accepted"], len(result["submitted"]["remaining"])) == (1, 2)
    assert "The person stopped, 2 items open" in result["next_step"]
    assert len(people(settings, ids)) == 1
    assert len(person.seen) == 2


@ERAS
def test_without_forms_the_items_come_back_as_text_for_the_assistant_to_show(
    settings: Settings, ids: list[str], mode: str
) -> None:
    async def main() -> dict[str, Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), mode=mode) as client:
                batch = await call(client, "get_judging_batch", **ASK)
                assert "Show the person each item" in batch["next_step"]
                assert batch["rubric"]["criteria"]
                entries = [{"item_id": item["item_id"], "value": 0.5} for item in batch["items"]]
                return await call(client, "submit_scores", batch_id=batch["batch_id"], scores=entries)

    assert anyio.run(main)["accepted"] == 3
    assert people(settings, ids) == [0.5] * 3


@ERAS
def test_the_assistant_judges_through_the_same_tools_and_is_asked_nothing(
    settings: Settings, ids: list[str], mode: str
) -> None:
    person = Person()

    async def main() -> dict[str, Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), mode=mode, elicitation_callback=person) as client:
                batch = await call(client, "get_judging_batch", limit=3)
                scores = {"task_completion": 1, "process": 0}
                entries = [{"item_id": item["item_id"], "scores": scores} for item in batch["items"]]
                entries[1]["scores"] = {"task_completion": "great"}
                return await call(client, "submit_scores", batch_id=batch["batch_id"], scores=entries)

    result = anyio.run(main)
    assert (result["accepted"], [one["item_id"] for one in result["rejected"]]) == (2, ["i2"])
    assert person.seen == []


def test_a_client_that_fails_to_show_a_form_gets_the_open_items_as_text(settings: Settings, ids: list[str]) -> None:
    """In the handshake era, where the server sees it; with rounds the client's own call ends."""
    person = Person(FILLED, afterwards="break")

    async def main() -> dict[str, Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), mode="legacy", elicitation_callback=person) as client:
                return await call(client, "get_judging_batch", **ASK)

    result = anyio.run(main)
    assert result["submitted"]["accepted"] == 1
    assert len(result["items"]) == 2
    assert result["next_step"].startswith("The client could not show a form. Show the person")


def test_a_person_is_asked_no_more_often_than_clients_allow(settings: Settings) -> None:
    services = open_services(settings)
    services.store.trajectories.add_many([run(f"t{n}") for n in range(12)], NOW)
    services.close()
    person = Person(*[{"score_task_completion": "3", "score_process": "3"}] * 12)

    async def main() -> dict[str, Any]:
        with anyio.fail_after(60):
            async with Client(create_server(settings), elicitation_callback=person) as client:
                return await call(client, "get_judging_batch", limit=12, judge="person")

    assert anyio.run(main)["submitted"]["accepted"] == 8


async def asked(client: Client, **more: Any) -> Any:
    """One round of a client that drives the rounds itself."""
    arguments = {**ASK, **more.pop("arguments", {})}
    return await client.session.call_tool("get_judging_batch", arguments, allow_input_required=True, **more)


ACCEPTED = {"answer": ElicitResult(action="accept", content=FILLED)}  # type: ignore[dict-item]


def test_server_processes_on_one_home_share_a_round_over_stdio(settings: Settings, ids: list[str]) -> None:
    """The first question comes from one process; the answers go to another, and the rest to one of the handshake era."""
    person = Person(FILLED)

    async def main() -> tuple[InputRequiredResult, dict[str, Any]]:
        with anyio.fail_after(120):
            async with Client(server(settings), elicitation_callback=Person()) as one:
                first = await asked(one)
            async with Client(server(settings), mode="legacy", elicitation_callback=person) as other:
                legacy = await call(other, "get_judging_batch", **{**ASK, "rater": "bob"})
            async with Client(create_server(settings), elicitation_callback=Person()) as later:
                second = await asked(later, input_responses=ACCEPTED, request_state=first.request_state)
                # The same call once more, as after a lost answer: nothing is taken twice.
                again = await asked(later, input_responses=ACCEPTED, request_state=first.request_state)
                assert again.input_requests == second.input_requests
                return second, legacy

    second, legacy = anyio.run(main)
    assert second.input_requests is not None
    assert second.input_requests["answer"].params.message.startswith("2 of 3.")  # type: ignore[union-attr]
    assert legacy["submitted"]["accepted"] == 1
    assert people(settings, ids) == [pytest.approx(0.7)] * 2
    assert stat.S_IMODE((settings.home / "state.key").stat().st_mode) == 0o600


def test_a_state_can_be_neither_read_nor_forged_nor_used_for_another_call(
    settings: Settings, ids: list[str], tmp_path: Path
) -> None:
    async def refused(client: Client, **more: Any) -> str:
        with pytest.raises(MCPError) as raised:
            await asked(client, input_responses=ACCEPTED, **more)
        return raised.value.error.message

    async def main() -> None:
        with anyio.fail_after(60):
            async with Client(create_server(settings), elicitation_callback=Person()) as client:
                state = (await asked(client)).request_state
                assert state is not None
                assert "batch" not in state
                assert not any(run_id in state for run_id in ids)
                other = {"limit": 2, "rater": "bob"}
                forged = state[:-6] + ("A" * 6 if state[-6:] != "A" * 6 else "B" * 6)
                for words in (
                    await refused(client, request_state=forged),
                    await refused(client, request_state='{"batch": "batch-1", "item": "i1", "done": {}}'),
                    await refused(client, request_state=state, arguments=other),
                ):
                    assert words == "Invalid or expired requestState"
            elsewhere = Settings(home=tmp_path / "elsewhere")
            async with Client(create_server(elsewhere), elicitation_callback=Person()) as stranger:
                assert await refused(stranger, request_state=state) == "Invalid or expired requestState"

    anyio.run(main)
    assert people(settings, ids) == []


def test_a_round_without_an_answer_asks_the_same_again(settings: Settings, ids: list[str]) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            async with Client(create_server(settings), elicitation_callback=Person()) as client:
                first = await asked(client)
                again = await asked(client, request_state=first.request_state)
                assert again.input_requests == first.input_requests

    anyio.run(main)


def test_forms_work_over_http_in_both_eras(settings: Settings, ids: list[str]) -> None:
    async def main(url: str) -> list[int]:
        accepted = []
        for mode in ("auto", "legacy"):
            person = Person(FILLED)
            with anyio.fail_after(60):
                async with Client(url, mode=mode, elicitation_callback=person) as client:
                    result = await call(client, "get_judging_batch", **{**ASK, "rater": mode})
                    accepted.append(result["submitted"]["accepted"])
        return accepted

    serve = ("-m", "quintain.cli.main", "serve", "--transport", "http", "--port", "{port}")
    with listening(*serve, "--home", str(settings.home)) as port:
        assert anyio.run(main, f"http://127.0.0.1:{port}/mcp") == [1, 1]


def test_a_key_is_made_once_and_a_broken_one_is_told(home: Path) -> None:
    assert key_of_home(home) == key_of_home(home)
    assert sorted(path.name for path in home.iterdir()) == ["quintain.db", "state.key"]
    (home / "state.key").write_bytes(b"short")
    with pytest.raises(Unavailable, match=r"expected a key of 32 bytes in .*, got 5; delete the file"):
        key_of_home(home)


def test_the_prompt_for_labelling_names_the_tools_in_order(settings: Settings) -> None:
    async def main() -> str:
        async with Client(create_server(settings)) as client:
            found = await client.get_prompt("label_data", {"agent": "clerk", "rubric": "coding"})
            return found.messages[0].content.text  # type: ignore[union-attr]

    text = anyio.run(main)
    assert text.index("judge='person'") < text.index("judge='assistant'") < text.index("fit_calibration")
    assert "rubric='coding', filter={'agent': 'clerk'}" in text
