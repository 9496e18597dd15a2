"""Rewards in real jobs: trained models, judges behind an endpoint, tests in a sandbox, and rewards made by `create_reward`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fake_endpoint import Answer, Asked, FakeEndpoint, profile, says, serving, write_profiles
from quintain.errors import Refused
from quintain.records.labels.calibration import Calibration, CalibrationMap, DomainFit, Panel, RaterFit
from quintain.scoring import registry
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.settings import Settings
from quintain.tools.labels.rewards import reward_spec
from quintain.tools.services import open_services
from scripted_judges import recorded, scored
from tools.dict_calls import Caller

ENDPOINT: dict[str, Any] = {"concurrency": 2, "input_usd_per_mtok": 1.0, "output_usd_per_mtok": 2.0}
FEW = {"max_steps": 1, "batch_size": 2}
CHECKER = {
    "type": "unit_tests",
    "files": ["double.py"],
    "command": "python3 -m unittest -q test_double",
    "tests": {
        "test_double.py": "import unittest\nfrom double import double\n\n\nclass T(unittest.TestCase):\n"
        "    def test_double(self):\n        self.assertEqual(double(21), 42)\n"
    },
}


@pytest.fixture(autouse=True)
def _rewards_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})


@pytest.fixture
def grader() -> Iterator[FakeEndpoint]:
    """A judge that values runs by whether their text has an odd length; its first two answers wait for each other."""
    both = threading.Barrier(2)

    def reply(asked: Asked, before: int) -> Answer:
        if before < 2:
            with suppress(threading.BrokenBarrierError):
                both.wait(100)
        text = recorded(asked.user)
        names = [criterion.name for criterion in RUBRICS["default"].criteria]
        return says(scored(names, 0.2 + 0.6 * (len(text) % 2), *text.split("\n")[-8:]))

    with serving(reply) as endpoint:
        yield endpoint


def solution(body: str, i: int) -> dict[str, Any]:
    """Return a run that writes `double.py` and states an answer."""
    text = f"```python\ndef double(x):\n    return {body}  # {i}\n```\nThe answer is 42"
    task = {"id": "t", "prompt": "Write double(x). What is double(21)?"}
    metadata = {"answer": 42, "checker": CHECKER}
    steps = [{"actor": "user", "message": task["prompt"]}, {"actor": "agent", "message": text}]
    return {"task": {**task, "metadata": metadata}, "steps": steps}


def trained(tool: Caller, **parameters: Any) -> dict[str, Any]:
    """Train, and return the finished job."""
    answer = tool(action="train", model_name="starter", use_lora=False, **parameters)
    assert answer["status"] == "success", answer
    view: dict[str, Any] = tool(action="status", job_id=answer["job_id"])
    return view


@pytest.mark.usefixtures("jobs_in_process")
def test_a_trained_model_and_a_judge_reward_the_episodes_of_grpo(
    tool: Caller, home: Path, grader: FakeEndpoint
) -> None:
    pairs = [{"chosen": solution("2 * x", i), "rejected": solution("x", i)} for i in range(2)]
    tool.register_dataset("pairs", pairs, kind="reward")
    trained(tool, algorithm="reward", dataset="pairs", name="liking", hyperparameters=FEW)
    write_profiles(Settings(home=home), profile("grader", grader.url, **ENDPOINT))
    reward = {"agent:liking": 1, "judge": {"weight": 1, "judge": "endpoint:grader"}, "length": 1}
    view = trained(
        tool,
        algorithm="grpo",
        environment="quintain/inventory",
        reward=reward,
        hyperparameters={"rollouts": 1, "tasks_per_step": 2, "group_size": 3, "max_new_tokens": 24, "max_turns": 2},
    )
    report = view["result"]["report"]["reward"]
    assert report["parts"].keys() == {"agent:liking@1", "judge:default", "length"}, report
    assert {"reward/agent:liking@1", "reward/judge:default", "reward/length"} <= view["metrics"].keys()
    assert report["scored"] + sum(report["unscored"].values()) == 6
    assert report["scored"] >= 3, report
    judge = report["judges"]["judge:default"]
    assert grader.most_at_once() == 2, "questions of a batch are asked side by side"
    assert judge["requests"] == len(grader.asked) <= 6 + 4
    asked = {str(asked.body) for asked in grader.asked}
    assert len(asked) == len(grader.asked) - 2, "only the control of each of the two tasks is asked twice"
    assert judge["usd"] == pytest.approx(judge["requests"] * (100 * 1.0 + 10 * 2.0) / 1e6)


@pytest.mark.usefixtures("jobs_in_process")
def test_unit_tests_and_created_rewards_reward_the_runs_of_a_dataset(tool: Caller) -> None:
    right, wrong = [solution(body, 0) for body in ("2 * x", "x + 1")]
    tool.register_dataset("tries", [{"runs": [right, wrong], "rewards": [0.0, 1.0]}], kind="grpo")
    made = [
        tool(action="create_reward", reward_type="length_penalty", penalty_weight=0.5, max_length=20)["scorer"],
        tool(action="create_reward", reward_type="step")["scorer"],
        tool(action="create_reward", reward_type="contains", text="def double", of="all", name="defines")["scorer"],
    ]
    assert made == ["length_penalty-0.5-20", "step-0.1", "defines"]
    reward = {"unit_tests": 1, "checker": 1, **dict.fromkeys(made, 1)}
    view = trained(tool, algorithm="grpo", dataset="tries", reward=reward, hyperparameters={"max_steps": 1})
    parts = view["result"]["report"]["reward"]["parts"]
    assert (parts["unit_tests"], parts["checker"], parts["defines"]) == (0.5, 0.5, 1.0), view["result"]
    assert parts["step-0.1"] == pytest.approx(1 / 1.5)
    assert 0 <= parts["length_penalty-0.5-20"] < 1
    assert view["result"]["report"]["examples"] == 1


@pytest.mark.usefixtures("jobs_in_process")
def test_several_judges_reward_runs_by_the_weights_that_people_taught_them(tool: Caller, home: Path) -> None:
    names = [criterion.name for criterion in RUBRICS["default"].criteria]

    def judge(*values: float) -> Callable[[Asked, int], Answer]:
        """Value the right run, the wrong one, and the control, which has no words of the agent."""

        def reply(asked: Asked, before: int) -> Answer:
            text = recorded(asked.user)
            value = values[0] if "2 * x" in text else values[1] if "x + 1" in text else 0.0
            return says(scored(names, value, *text.split("\n")[-8:]))

        return reply

    runs = [solution(body, 0) for body in ("2 * x", "x + 1")]
    tool.register_dataset("tries", [{"runs": runs, "rewards": [0.0, 1.0]}], kind="grpo")
    judges = {"judge": {"weight": 1, "judge": ["endpoint:careful", "endpoint:fond"]}}
    with serving(judge(0.8, 0.4)) as first, serving(judge(1.0, 1.0)) as second:
        both = {"careful": first, "fond": second}
        write_profiles(Settings(home=home), *(profile(name, one.url, **ENDPOINT) for name, one in both.items()))
        common: dict[str, Any] = {"algorithm": "grpo", "dataset": "tries", "hyperparameters": {"max_steps": 1}}
        plain = trained(tool, reward=judges, **common)["result"]["report"]["reward"]
        services = open_services(Settings(home=home), trusted=True)
        services.store.calibrations.add("judge:default", _taught, services.clock())
        services.close()
        taught = trained(tool, reward=judges, **common)["result"]["report"]["reward"]
        raw = trained(tool, reward={"raw:judge": judges["judge"]}, **common)["result"]["report"]["reward"]
    mean = (0.8 + 0.4) / 2
    assert plain["judges"]["judge:default"].keys() == {"endpoint:careful", "endpoint:fond"}
    assert plain["mean"] == raw["mean"] == pytest.approx((mean + 1) / 2)
    # Nine tenths of the careful judge, whose values are doubled less 0.6; one tenth of the other, whose are taken as 0.5.
    assert taught["mean"] == pytest.approx(0.9 * (2 * mean - 0.6) + 0.1 * 0.5)


def _taught(version: int) -> Calibration:
    fit = {"n_labels": 20, "length_bias": 0.0, "length_low": -0.1, "length_high": 0.1, "length_taken_out": False}
    raters = {
        "endpoint:careful": RaterFit(weight=0.9, intercept=-0.6, slope=2.0, **fit),
        "endpoint:fond": RaterFit(weight=0.1, intercept=0.5, slope=0.0, **fit),
    }
    identity = CalibrationMap(method="isotonic", x=(0.0, 1.0), y=(0.0, 1.0))
    whole = DomainFit(map=identity, n_labels=20, error_before=0.1, error_after=0.05, spearman=None)
    return Calibration(
        id=f"cal-judge-{version}",
        scorer="judge:default",
        version=version,
        labels="people",
        panel=Panel(raters=raters, doublings=7.0),
        domains={"*": whole},
    )


def test_unit_tests_as_a_reward_are_refused_before_a_job_where_no_sandbox_may_run(home: Path) -> None:
    services = open_services(Settings(home=home, sandbox="off"), trusted=True)
    with pytest.raises(Refused, match="the operator can set it to auto"):
        reward_spec(services, {"unit_tests": 1, "length": 1})
    assert reward_spec(services, "checker").parts[0].sandbox is not None, "other checkers need no sandbox"
    services.close()
