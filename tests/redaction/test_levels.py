"""The levels of redaction: secrets, personal data, both or neither."""

from __future__ import annotations

import pytest

from quintain.errors import InvalidInput
from quintain.records.filters import TrajectoryFilter
from quintain.records.imports import PERSONAL_KINDS
from quintain.records.jobs.job import ImportSpec
from quintain.redaction.redact import redact_text
from quintain.settings import Settings, read_settings
from quintain.tools.data.datasets import export_dataset
from quintain.tools.data.trajectories import record_trajectory, search_trajectories
from quintain.tools.services import open_services

TEXT = "DB_PASSWORD=hunter22 of bob@corp.net, +49 170 1234567, 811218-9876, 10.1.2.3, Visa 4539 5787 6362 1486"
BOTH = ("secrets", "personal")


def test_each_level_removes_its_own_kinds() -> None:
    assert redact_text(TEXT, ("secrets",))[1] == {"password": 1}
    personal = redact_text(TEXT, ("personal",))[1]
    assert personal == {"email": 1, "phone": 1, "national_id": 1, "private_ip": 1, "card": 1}
    assert personal.keys() <= PERSONAL_KINDS
    assert not redact_text(TEXT, ("secrets",))[1].keys() & PERSONAL_KINDS
    assert redact_text(TEXT)[1] == personal + redact_text(TEXT, ("secrets",))[1]
    assert redact_text(TEXT, ()) == (TEXT, {})
    assert redact_text("https://bob:hunter22@corp.net/x", ("personal",)) == ("https://bob:hunter22@corp.net/x", {})


@pytest.mark.parametrize(
    ("value", "levels"),
    [
        *((word, BOTH) for word in ("1", "true", "True", "yes", "on", "secrets,personal", " Secrets , personal")),
        *((word, ()) for word in ("0", "false", "no", "off", "OFF")),
        ("secrets", ("secrets",)),
        ("personal", ("personal",)),
    ],
)
def test_the_variable_takes_levels_and_the_earlier_flags(
    value: str, levels: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUINTAIN_REDACT", value)
    assert read_settings().redact == levels


def test_an_unknown_level_is_refused_and_none_given_means_both(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().redact == BOTH
    for wrong in ("secrets,names", "off,secrets", ""):
        monkeypatch.setenv("QUINTAIN_REDACT", wrong)
        with pytest.raises(InvalidInput, match=r"QUINTAIN_REDACT.*'secrets' or 'personal'"):
            read_settings()


def test_jobs_that_were_stored_before_there_were_levels_keep_their_meaning() -> None:
    assert ImportSpec.model_validate({"path": "/x", "redact": True}).redact == BOTH
    assert ImportSpec.model_validate({"path": "/x", "redact": False}).redact == ()
    assert ImportSpec(path="/x", redact=("personal",)).model_dump()["redact"] == ("personal",)


def test_a_recorded_run_is_redacted_by_the_levels_of_the_operator(settings: Settings) -> None:
    kinds = {"secrets": {"password", "api_key"}, "personal": {"email", "phone", "national_id", "private_ip", "card"}}
    for levels in (("secrets",), ("personal",), BOTH, ()):
        services = open_services(settings.model_copy(update={"redact": levels}))
        steps = [
            {"actor": "agent", "message": TEXT, "actions": [{"tool": "t", "args": {"api_key": "0123456789abcdef"}}]}
        ]
        recorded = record_trajectory(services, trajectory={"task": {"prompt": f"{levels}"}, "steps": steps})
        assert set(recorded.redactions) == set().union(*(kinds[level] for level in levels))
        services.close()


def test_runs_are_filtered_by_whether_personal_data_was_found_and_searched_for(settings: Settings) -> None:
    def record(levels: tuple[str, ...], answer: str) -> str:
        services = open_services(settings.model_copy(update={"redact": levels}))
        turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]
        found = record_trajectory(services, task="q", messages=turns, outcome="success").trajectory_id
        services.close()
        return found

    clean, named = record(BOTH, "3"), record(("personal",), "ask bob@corp.net")
    raw, half = record((), "5"), record(("secrets",), "DB_PASSWORD=hunter22")
    services = open_services(settings)
    for state, ids in (("none", {clean}), ("found", {named}), ("unknown", {raw, half})):
        chosen = TrajectoryFilter(personal_data=state)  # type: ignore[arg-type]
        assert {run.id for run in search_trajectories(services, chosen).items} == ids
    assert record(BOTH, "5") == raw, "a run that is known is searched when it comes again"
    nothing = TrajectoryFilter(personal_data="none")
    assert export_dataset(services, "sft", "clean", filter=nothing).trajectories == 2
    services.close()
