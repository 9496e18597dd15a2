"""The same tools as dict calls, without any server: LoRA training, evaluation, a folder of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jobs_in_process import jobs_in_process  # noqa: F401
from quintain.tools import RLTrainingTool
from quintain.tools.jobs import plots

RUN = [
    {"role": "user", "content": "What is the price of the red lamp?"},
    {
        "role": "assistant",
        "content": "Find the red lamp.",
        "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": '{"query": "red lamp"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "red lamp kilo"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c2", "function": {"name": "submit", "arguments": '{"answer": 12}'}}],
    },
]


@pytest.mark.usefixtures("jobs_in_process")
def test_a_program_trains_an_adapter_on_its_own_runs_and_measures_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = RLTrainingTool(home)

    def run(**parameters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(tool.run(parameters))
        return answer

    runs = [{"messages": RUN, "task": {"id": f"mine-{n}", "prompt": RUN[0]["content"]}} for n in range(3)]
    tool.register_dataset("mine", runs)
    output = tmp_path / "adapter"
    trained = run(
        action="train",
        algorithm="sft",
        model_name="starter",
        dataset="mine",
        max_samples=2,
        num_epochs=2,
        batch_size=1,
        output_dir=str(output),
        use_lora=True,
        name="mine",
    )
    assert trained["status"] == "success", trained
    assert (trained["algorithm"], trained["dataset_size"], trained["agent"]) == ("SFT", 2, "agent:mine@1")
    assert trained["output_dir"] == str(output)
    assert (output / "adapter_model.safetensors").is_file()
    view = run(action="status", job_id=trained["job_id"])
    assert (view["status"], view["total_steps"]) == ("succeeded", 4)
    assert view["result"]["report"]["dropped"] == {}
    monkeypatch.setattr(plots, "subprocess", subprocess)  # a process of its own draws, as for every user
    picture = tmp_path / "curve.png"
    assert run(action="plot", job_id=trained["job_id"], path=str(picture))["status"] == "success"
    assert picture.read_bytes().startswith(b"\x89PNG")
    refused = run(action="evaluate", model_path="mine", max_samples=4)
    assert (refused["status"], refused["code"]) == ("error", "no_suite"), "its runs are of no environment"
    measured = run(action="evaluate", model_path="mine", max_samples=4, environment="quintain/inventory")
    assert (measured["status"], measured["num_samples"]) == ("success", 4), measured
    assert 0 <= measured["ci_low"] <= measured["accuracy"] <= measured["ci_high"] <= 1
    missing = run(action="train", dataset="mine", model_name=str(tmp_path / "nothing"))
    assert (missing["status"], missing["code"]) == ("error", "model_not_found")
    tool.close()
