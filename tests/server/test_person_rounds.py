"""A person's round with trouble in it, in both eras: what was good is kept, what was declined stays theirs, nothing is silent."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client
from mcp.types import InputRequiredResult

from mcp_client import call
from quintain.server.app import create_server
from quintain.settings import Settings
from quintain.tools.services import Services
from server.talks import ACCEPTED, FILLED, Person, asked, round_of, serve
from server.test_elicitation import values


@pytest.mark.parametrize(("mode", "afterwards"), [("auto", "decline"), ("legacy", "cancel")])
def test_what_a_person_declined_or_answered_in_a_form_nobody_answers_for_them(
    settings: Settings, services: Services, mode: str, afterwards: str
) -> None:
    person = Person(FILLED, afterwards=afterwards)
    ended, for_them, over_them = round_of(
        settings, person, mode, {"item_id": "i2", "value": 1}, {"item_id": "i1", "value": 0}
    )
    assert (ended["submitted"]["accepted"], len(ended["submitted"]["remaining"]), len(person.seen)) == (1, 2, 2)
    for step in (ended["next_step"], ended["submitted"]["next_step"]):
        assert "2 items open, which only the person answers" in step
        assert "submit" not in step
    for refused in (for_them, over_them):
        assert refused["accepted"] == 0
        assert "[asked_in_form] person:ann was asked" in refused["rejected"][0]["reason"]
        assert "submit" not in refused["next_step"]
    assert values(services) == [pytest.approx(0.7)]


def test_where_the_form_breaks_down_the_open_items_can_be_passed_on_and_the_answered_stay(
    settings: Settings, services: Services
) -> None:
    ended, open_one, answered = round_of(
        settings,
        Person(FILLED, afterwards="break"),
        "legacy",
        {"item_id": "i2", "value": 1, "rationale": "good"},
        {"item_id": "i1", "value": 0},
    )
    assert [item["item_id"] for item in ended["items"]] == ["i2", "i3"]
    assert ended["submitted"]["accepted"] == 1
    assert ended["next_step"].startswith("The client could not show a form. Show the person")
    assert (open_one["accepted"], answered["accepted"]) == (1, 0)
    ids = [one.id or "" for one in services.store.trajectories.iterate()]
    said = {score.value: score.feedback for run_id in ids for score in services.store.scores.of_trajectory(run_id)}
    assert said == {0.7: "", 1.0: "(relayed) good"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"correct_step": "0"}, "a correction needs both"),
        ({"correct_step": "0", "correct_with": '{"tool": '}, "begins like JSON and is not valid JSON"),
        ({"correct_step": "0", "correct_with": '{"tool": "tak"}'}, "did you mean 'take'"),
        ({"correct_step": "0", "correct_with": "Answer 0."}, "expected another step than the agent took"),
    ],
)
def test_a_correction_that_cannot_be_is_asked_again_and_the_scores_are_kept(
    settings: Settings, services: Services, wrong: dict[str, str], why: str
) -> None:
    (first,) = [one.id for one in services.store.trajectories.iterate() if one.task.id == "t0"]
    mended = {"correct_step": "0", "correct_with": "Better said."}
    person = Person(FILLED | wrong, mended)
    (ended,) = round_of(settings, person, "auto", limit=1, trajectory_ids=[first])
    assert why in person.seen[1].message
    assert list(person.seen[1].requested_schema["properties"]) == ["correct_step", "correct_with"]
    assert (ended["submitted"]["accepted"], ended["submitted"]["rejected"]) == (1, [])
    assert values(services) == [pytest.approx(0.7)]
    (better,) = ended["submitted"]["corrections"]
    assert services.store.trajectories.get(better).steps[-1].message == "Better said."


def test_a_correction_is_asked_again_once_and_then_told(settings: Settings, services: Services) -> None:
    person = Person(FILLED | {"correct_step": "0"}, {"correct_step": "0"}, FILLED)
    (ended,) = round_of(settings, person, "legacy", limit=2)
    assert [seen.message[:7] for seen in person.seen] == ["1 of 2.", "1 of 2.", "2 of 2."]
    assert ended["submitted"]["accepted"] == 2
    assert [one["item_id"] for one in ended["submitted"]["rejected"]] == ["i1"]
    assert "Rejected: i1" in ended["next_step"]
    assert values(services) == [pytest.approx(0.7)] * 2


def test_a_choice_that_the_form_does_not_have_is_asked_again_by_itself(settings: Settings, services: Services) -> None:
    person = Person({"score_task_completion": "5", "score_process": "2.5", "note": "fine"}, {"score_process": "2"})
    (ended,) = round_of(settings, person, "auto", limit=1)
    assert list(person.seen[1].requested_schema["properties"]) == ["score_process"]
    assert ended["submitted"]["accepted"] == 1
    assert values(services) == [pytest.approx(0.7)]


def test_a_repeated_last_request_reports_the_same(settings: Settings, services: Services) -> None:
    async def talk(client: Client) -> list[Any]:
        last = await asked(client)
        for _ in range(2):
            last = await asked(client, input_responses=ACCEPTED, request_state=last.request_state)
        state = last.request_state
        ends = [await asked(client, input_responses=ACCEPTED, request_state=state) for _ in range(2)]
        return [end.structured_content for end in ends]

    one, again = serve(create_server(settings), "auto", talk, elicitation_callback=Person())
    assert (one["submitted"]["accepted"], one["submitted"]["remaining"]) == (3, [])
    assert again == one
    assert len(values(services)) == 3


def test_a_run_that_is_forgotten_while_its_form_is_open_is_reported(settings: Settings, services: Services) -> None:
    async def talk(client: Client) -> Any:
        last = await asked(client)
        assert isinstance(last, InputRequiredResult)
        batch = services.store.judging.newest(1)[0]
        await call(client, "forget", id=batch.items[0].trajectory_ids[0], dry_run=False)
        for _ in range(3):
            last = await asked(client, input_responses=ACCEPTED, request_state=last.request_state)
        return last.structured_content

    ended = serve(create_server(settings), "auto", talk, elicitation_callback=Person())
    assert (ended["submitted"]["accepted"], ended["submitted"]["remaining"]) == (2, [])
    (rejected,) = ended["submitted"]["rejected"]
    assert rejected["item_id"] == "i1"
    assert "[run_changed] a run of i1 was forgotten" in rejected["reason"]
    assert "submit" not in ended["submitted"]["next_step"]
