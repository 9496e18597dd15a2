"""Pictures and pages in the home folder's `reports/`."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from evaluation.test_comparison import evaluated
from quintain.errors import NotFound, Unavailable
from quintain.records.agent import Agent, ModelRef
from quintain.tools.evaluation.comparison import compare_agents, comparison_picture
from quintain.tools.jobs import pictures
from quintain.tools.jobs.dashboard import show_training_dashboard
from quintain.tools.jobs.plots import plot_job, save_report
from quintain.tools.services import Services
from quintain.tools.web_address import page_announced
from tools.test_figures import reported, step, trained


@pytest.fixture
def measured(services: Services) -> Services:
    """Agents `a` and `b`, which solved 1 and 3 of 4 tasks."""
    for name, outcomes in (("a", "0001"), ("b", "0111")):
        services.store.agents.add(Agent(name=name, model=ModelRef(source="folder", path="/m")), services.clock())
        services.store.evaluations.add(evaluated(name, outcomes), services.clock())
    return services


@pytest.mark.usefixtures("measured")
def test_a_comparison_saves_its_picture_and_page_once_and_names_them(services: Services) -> None:
    found = compare_agents(services, ["a", "b"])
    page, picture = (f"reports/{found.comparison_id}.{ending}" for ending in ("html", "png"))
    assert f"Saved in the home folder: {page}, {picture}." in found.next_step
    png = (services.settings.home / picture).read_bytes()
    assert png.startswith(b"\x89PNG")
    assert "b - a" in (services.settings.home / page).read_text(encoding="utf-8")
    (services.settings.home / picture).write_bytes(b"kept")
    again = compare_agents(services, [found.comparison_id], show=True)
    assert again.png == b"kept", "a stored comparison never changes, so it is drawn once"


@pytest.mark.usefixtures("measured")
def test_a_picture_that_cannot_be_drawn_costs_the_picture_and_not_the_verdict(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 60)

    with monkeypatch.context() as patch:
        patch.setattr(pictures, "subprocess", SimpleNamespace(**{**vars(subprocess), "run": late}))
        found = compare_agents(services, ["a", "b"])
        assert (
            "No picture is saved: expected a picture, got none: the process that draws it took longer"
            in found.next_step
        )
        with pytest.raises(Unavailable, match="call again later"):
            comparison_picture(services, found.comparison_id)
    assert len(found.comparisons) == 1
    assert comparison_picture(services, found.comparison_id).startswith(b"\x89PNG"), "the next call draws it"


def test_a_dashboard_shows_the_newest_training_and_where_it_is_live(services: Services) -> None:
    with pytest.raises(NotFound, match=r"expected a training, got none; begin one with start_training\("):
        show_training_dashboard(services)
    reported(services, trained(), step(1, loss=1.0), step(2, loss=0.5))
    with page_announced(services.settings.home, "http://127.0.0.1:8000"):
        shown = show_training_dashboard(services)
    assert shown.text.startswith("sft base -> pupil on ds-1: succeeded, step 2 of 9")
    assert "Live: http://127.0.0.1:8000/jobs/job-1" in shown.text
    assert shown.figure is not None
    assert "Live:" not in show_training_dashboard(services, "job-1").text


def test_a_folder_that_cannot_be_written_costs_the_files_and_not_the_answer(services: Services) -> None:
    services.settings.reports_dir.write_text("a file in the way", encoding="utf-8")
    picture = plot_job(services, reported(services, trained(), step(1, loss=1.0), step(2, loss=0.5)))
    assert picture.png.startswith(b"\x89PNG")
    assert picture.text.endswith("Not saved in the home folder's reports/: File exists")


def test_a_report_to_send_has_the_settings_and_no_folder_of_this_machine(services: Services) -> None:
    model = ModelRef(source="folder", path="/secret/place/critic")
    critic = Agent(id="agent:critic@1", name="critic", model=model)
    spec = trained(
        dataset_id=None,
        environment="quintain/inventory",
        method="grpo",
        config={"method": "grpo", "reward_model": "critic", "rollouts": 7},
        reward_agent=critic,
    )
    (page, _) = save_report(
        services, reported(services, spec, step(1, loss=1.0), report={"path": "/secret/place/x.gguf"})
    )
    text = (services.settings.home / page).read_text(encoding="utf-8")
    assert "/secret" not in text
    assert "agent:critic@1" in text
    assert "…/x.gguf" in text
    assert "<td>rollouts</td><td>7</td>" in text


@pytest.mark.usefixtures("measured")
def test_an_agent_has_a_page_too(services: Services) -> None:
    assert save_report(services, "agent:a@1") == ("reports/agent-a@1.html",)
    assert "25.0% [0.6%, 80.6%]" in (services.settings.reports_dir / "agent-a@1.html").read_text(encoding="utf-8")
