"""Online training whose episodes a server samples: real ids and log-probs of the embedded model, its adapters, and what goes wrong."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from safetensors.torch import load_file

from fake_endpoint import profile, write_profiles
from jobs_in_process import in_process
from quintain.endpoints import client as client_module
from quintain.errors import QuintainError
from quintain.records.agent import ModelRef, Sampling
from quintain.records.hyperparameters.methods import LoraConfig, SamplerConfig
from quintain.records.jobs.job import Job, JobStatus
from quintain.records.labels.judging import Endpoint
from quintain.records.protocols import Message, Turn
from quintain.records.trajectory import Trajectory
from quintain.settings import Settings
from quintain.tools.evaluation.rollouts import collect_rollouts
from quintain.tools.jobs.jobs import resume_job
from quintain.tools.services import Services
from quintain.tools.training.model_folders import starter_folder
from quintain.tools.training.start import start_training
from quintain.trainers.engine.forward import Engine
from quintain.trainers.models.loading import LoadedModel, load_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rollouts.sampler_comparison import compare_samples
from quintain.worker.policies import remote_sampler
from quintain.worker.policies.remote_sampler import RemoteSampler
from quintain.worker.rollouts import concurrent_rollouts
from sampling_server import Sampler, serving
from tools.stored_records import ended, error_of
from trainers.playing import save_sharp_teacher

LEARNING = {
    "group_size": 8, "tasks_per_step": 1, "rollouts": 2, "max_new_tokens": 3, "max_turns": 1, "learning_rate": 5e-3,
    "schedule": "constant", "warmup_ratio": 0, "lora": {"rank": 4, "alpha": 16}, "sampler": {"endpoint": "endpoint:far"},
}  # fmt: skip
SHORT = {**LEARNING, "group_size": 2, "checkpoint_every_steps": 1}
UPDATE = ["/pause", "/v1/load_lora_adapter", "/reset_prefix_cache", "/update_weight_version", "/resume"]


@pytest.fixture(scope="module")
def sampler() -> Iterator[Sampler]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Sampler(starter_folder())
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def student() -> LoadedModel:
    """The embedded model with a new adapter."""
    lora = LoraConfig(rank=4, alpha=16)
    return load_model(ModelRef(source="starter", path=str(starter_folder())), lora=lora, train=True)


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(remote_sampler, "_PROBE_TOKENS", 4)


@pytest.fixture
def environment(tmp_path: Path) -> str:
    """Tasks that are solved by one word, which the embedded model writes now and then."""
    rows = [{"id": f"t{i}", "prompt": f"Say {i}.", "split": "train"} for i in range(4)]
    lines = [json.dumps({**row, "checker": {"type": "regex", "pattern": "heavy"}}) for row in rows]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("\n".join(lines), encoding="utf-8")
    return f"quintain/tasks?file={tasks}"


def far_profile(settings: Settings, url: str, **fields: Any) -> None:
    write_profiles(settings, profile("far", base_url=url, model="base", max_attempts=2, **fields))


def train(services: Services, environment: str, settings: dict[str, Any], method: str = "grpo") -> Job:
    """Train the embedded model in this process; the ended job."""
    with in_process():
        started = start_training(services, method, "starter", environment=environment, hyperparameters=settings, seed=1)
    return ended(services, started)


def resumed(services: Services, job: Job) -> Job:
    with in_process():
        view = resume_job(services, job.id)
    return ended(services, view)


def played(services: Services, job: Job) -> list[Trajectory]:
    lines = (services.settings.jobs_dir / job.id / "outputs" / "trajectory.jsonl").read_text("utf-8").splitlines()
    return [Trajectory.model_validate(json.loads(line)["record"]) for line in lines]


def steps(services: Services, job: Job) -> list[dict[str, Any]]:
    lines = (services.settings.jobs_dir / job.id / "events.jsonl").read_text("utf-8").splitlines()
    return [event["metrics"] for event in map(json.loads, lines) if event["type"] == "progress"]


def weights(services: Services, job: Job) -> dict[str, torch.Tensor]:
    (agent,) = services.store.agents.of_job(job.id)
    return load_file(Path(agent.model.adapter) / "adapter_model.safetensors")


def test_an_agent_learns_from_what_a_server_samples_with_its_newest_adapter(
    services: Services, settings: Settings, sampler: Sampler, environment: str, tmp_path: Path
) -> None:
    sampler.restore()
    shared = tmp_path / "shared"
    with serving(sampler) as url:
        far_profile(settings, url, adapters=str(shared))
        job = train(services, environment, LEARNING)
    assert job.status is JobStatus.SUCCEEDED, job.error
    curve = steps(services, job)
    rates = [step["success_rate"] for step in curve]
    assert rates[0] < 0.5 < rates[-1]
    assert max(step["sampler_distance"] for step in curve) < 1e-4
    assert curve[0]["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    runs = played(services, job)
    versions = [step.sampled.weight_version for run in runs for step in run.agent_steps if step.sampled]
    assert versions == [version for version in range(2) for _ in range(8)]

    updates = [call for call in sampler.calls if call != "/v1/completions"]
    assert updates == [*UPDATE * 2, "/v1/unload_lora_adapter"]
    assert sampler.loaded == str(shared / f"quintain-{job.id}" / "step-00000001")
    assert not list(shared.iterdir()), "adapters under training are deleted"


@pytest.mark.soak
@pytest.mark.parametrize("method", ["ppo", "dpo"])
def test_other_online_methods_learn_from_a_servers_samples(
    services: Services, settings: Settings, sampler: Sampler, environment: str, method: str
) -> None:
    sampler.restore()
    with serving(sampler) as url:
        far_profile(settings, url)
        job = train(services, environment, {**SHORT, "group_size": 4}, method)
    assert job.status is JobStatus.SUCCEEDED, job.error
    assert {step.sampled is None for run in played(services, job) for step in run.agent_steps} == {False}


FAULTS = [
    ({"gives_ids": False}, "no_token_ids", "vLLM from 0.10.2"),
    ({"shift": 1}, "tokenizer_mismatch", "others from place 0 on"),
    ({"max_lora_rank": 2}, "adapter_refused", "LoRA rank 4 is greater than max_lora_rank 2"),
    ({"dev_mode": False}, "no_weight_updates", "VLLM_SERVER_DEV_MODE=1"),
    ({"resets": False}, "stale_cache", "stop other clients of the server, then resume"),
    ({"stays_paused": True}, "endpoint_busy", "503: generation is paused"),
]


def test_a_server_that_is_not_exact_is_refused_with_the_remedy(
    sampler: Sampler, tmp_path: Path, student: LoadedModel
) -> None:
    """Before the first episode is played."""
    renderer = Renderer.of(student.tokenizer)

    def refusal(number: int) -> QuintainError:
        endpoint = Endpoint(name="far", protocol="openai", base_url=url, model="base", max_attempts=2)
        folder = tmp_path / f"job-{number}"
        folder.mkdir()
        with closing(RemoteSampler(SamplerConfig(endpoint="endpoint:far"), endpoint, folder, seed=1)) as remote:
            return error_of(remote.update, student, renderer, 0)

    with serving(sampler) as url:
        for number, (fault, code, words) in enumerate(FAULTS):
            sampler.restore(**fault)
            error = refusal(number)
            assert error.code == code, error
            assert words in error.message
            assert not sampler.paused
        sampler.restore()
        with torch.no_grad():
            sampler.base.model.norm.weight.mul_(0.5)
            error = refusal(len(FAULTS))
            sampler.base.model.norm.weight.div_(0.5)
    assert error.code == "sampler_mismatch"
    assert "within 0.1 nats" in error.message


def test_a_server_whose_distributions_are_a_little_sharper_is_refused_by_its_log_probs_or_by_its_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log-probs show it at once; its draws alone, with true log-probs, after some probes. The model is far from certain."""
    monkeypatch.setattr(remote_sampler, "_PROBE_TOKENS", 64)
    model = save_sharp_teacher(tmp_path / "model").model
    uncertain = Sampler(tmp_path / "model")
    learner = load_model(model, lora=LoraConfig(rank=4), train=True)
    renderer = Renderer.of(learner.tokenizer)

    def probe(times: int, **heat: float) -> float | None:
        uncertain.restore(**heat)
        endpoint = Endpoint(name="far", protocol="openai", base_url=url, model="base")
        folder = tmp_path / f"job-{heat}"
        folder.mkdir()
        with closing(RemoteSampler(SamplerConfig(endpoint="endpoint:far"), endpoint, folder, seed=1)) as remote:
            for version in range(times):
                remote.update(learner, renderer, version)
            return remote.distance

    with serving(uncertain) as url:
        assert (probe(1) or 0) < 1e-4
        error = error_of(probe, 1, heat=0.9)
        assert error.code == "sampler_mismatch"
        assert "got ones of temperature" in error.message
        error = error_of(probe, 12, draw_heat=0.6)
        assert error.code == "sampler_mismatch"
        assert re.search(r"tokens drawn at temperature 1, got \d+ that are .* times as likely at 0.8", error.message)


def test_a_rollout_that_is_played_while_the_model_learns_is_no_older_than_allowed(
    services: Services, settings: Settings, sampler: Sampler, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent_rollouts, "_REPORT_S", 0.01)  # a job that waits for a rollout reports its turns
    sampler.restore()
    with serving(sampler) as url:
        far_profile(settings, url)
        ahead = {**SHORT, "rollouts": 3, "staleness": 1, "updates_per_rollout": 2, "importance_cap": 2.0}
        job = train(services, environment, ahead)
    assert job.status is JobStatus.SUCCEEDED, job.error
    assert len(steps(services, job)) == 6
    assert '"type":"activity"' in (services.settings.jobs_dir / job.id / "events.jsonl").read_text("utf-8")
    turns = [(run.tags[1], step.sampled) for run in played(services, job) for step in run.agent_steps]
    ages = {
        (tag, 2 * int(tag.removeprefix("iteration:")) - (sampled.weight_version or 0))
        for tag, sampled in turns
        if sampled
    }
    assert {tag for tag, _ in ages} == {f"iteration:{rollout}" for rollout in range(3)}
    assert {age for _, age in ages} <= {0, 2}
    assert ("iteration:0", 0) in ages
    assert sampler.calls.count("/resume") == 3
    assert sampler.calls[-1] == "/v1/unload_lora_adapter"


def test_a_turn_whose_weights_change_in_the_middle_records_which_weights_sampled_each_token(
    sampler: Sampler, tmp_path: Path, student: LoadedModel
) -> None:
    """The server pauses between two tokens, keeps the request, and goes on with the new adapter and no old keys."""
    renderer, sampling = Renderer.of(student.tokenizer), Sampling(temperature=1.0, max_new_tokens=6)
    turn = Turn(episode_id="e", messages=(Message(role="user", content="Say 1."),), seed=4)
    met, go_on = threading.Event(), threading.Event()

    def wait(place: int) -> None:
        if place == 3 and not met.is_set():
            met.set()
            assert go_on.wait(100)

    sampler.restore()
    engine, prompt = Engine.of(student.model), renderer.opening(turn.messages)
    with serving(sampler) as url, ThreadPoolExecutor(1) as thread:
        endpoint = Endpoint(name="far", protocol="openai", base_url=url, model="base")
        with closing(RemoteSampler(SamplerConfig(endpoint="endpoint:far"), endpoint, tmp_path, seed=1)) as remote:
            remote.update(student, renderer, 0)
            sampler.at_token = wait
            acting = thread.submit(remote.policy(student, renderer, sampling).act, [turn])
            assert met.wait(100)
            before = {n: p.detach().clone() for n, p in student.model.named_parameters() if "lora_B" in n}
            with torch.no_grad():
                for n, p in student.model.named_parameters():
                    if n in before:
                        p.add_(0.02)
            remote.update(student, renderer, 2)
            go_on.set()
            (reply,) = acting.result(20)
    sampler.at_token = lambda place: None
    found = reply.sampled
    assert (found.weight_version, found.weight_spans) == (0, ((0, 0), (3, 2)))
    ids, logprobs = found.token_ids, found.logprobs
    assert compare_samples(engine, [*prompt, *ids[:3]], ids[3:], logprobs[3:]).distance < 1e-4
    assert compare_samples(engine, prompt, ids[:3], logprobs[:3]).distance > 1e-3
    with torch.no_grad():
        for n, p in student.model.named_parameters():
            if n in before:
                p.copy_(before[n])
    assert compare_samples(engine, prompt, ids[:3], logprobs[:3]).distance < 1e-4


@pytest.mark.soak
def test_a_job_whose_server_gave_no_ids_resumes_once_it_does(
    services: Services, settings: Settings, sampler: Sampler, environment: str
) -> None:
    sampler.restore(gives_ids=False)
    with serving(sampler) as url:
        far_profile(settings, url)
        job = train(services, environment, SHORT)
        assert (job.status, job.error.code) == (JobStatus.FAILED, "no_token_ids")
        sampler.restore()
        again = resumed(services, job)
    assert again.status is JobStatus.SUCCEEDED, again.error
    assert len(played(services, again)) == 4


def test_a_server_that_dies_in_an_update_ends_the_job_which_goes_on_from_its_checkpoint(
    services: Services, settings: Settings, sampler: Sampler, environment: str
) -> None:
    sampler.restore(dies_at="/v1/load_lora_adapter")
    with serving(sampler) as url:
        far_profile(settings, url)
        job = train(services, environment, SHORT)
    assert job.error.code == "endpoint_busy"
    assert (
        "while its weights were updated (load_lora_adapter); start the server again, then resume" in job.error.message
    )
    assert len(played(services, job)) == 2
    sampler.restore(paused=True)  # it comes back as it was when it died
    with serving(sampler, urlsplit(url).port or 0):
        again = resumed(services, job)
    assert again.status is JobStatus.SUCCEEDED, again.error
    runs = played(services, again)
    assert {step.sampled.weight_version for run in runs for step in run.agent_steps if step.sampled} == {1}
    assert len(runs) == 2


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_server_that_dies_thirty_times_at_random_changes_nothing_of_the_result(
    services: Services, settings: Settings, sampler: Sampler, environment: str
) -> None:
    """Wherever it dies: in a pause, in an update, in a probe, in an episode. No step is taken twice, and no episode counts twice."""
    hyperparameters = {**SHORT, "rollouts": 6, "updates_per_rollout": 2}
    sampler.restore()
    with serving(sampler) as url:
        far_profile(settings, url)
        whole = train(services, environment, hyperparameters)
    port, chance, deaths = urlsplit(url).port or 0, Random(5), 0
    while deaths < 30:
        sampler.restore(dies_after=chance.randrange(1, 30))
        with serving(sampler, port):
            job = train(services, environment, {**hyperparameters, "keep_checkpoints": 1 + deaths})
        while job.status is not JobStatus.SUCCEEDED:
            assert job.error.code == "endpoint_busy", job.error
            assert re.search("start the server again|check the server", job.error.message)
            deaths += 1
            sampler.restore(dies_after=chance.randrange(1, 30) if deaths < 30 else None)
            with serving(sampler, port):
                job = resumed(services, job)
        parts, one = (weights(services, found) for found in (job, whole))
        assert parts.keys() == one.keys()
        assert max(float((parts[name] - one[name]).abs().max()) for name in one) < 1e-6


def test_an_agent_behind_an_endpoint_acts_by_token_ids_as_it_does_here(
    services: Services, settings: Settings, sampler: Sampler, environment: str
) -> None:
    sampler.restore()
    arguments: dict[str, Any] = {"environment": environment, "n_tasks": 1, "attempts": 2, "max_turns": 1, "seed": 3}
    with serving(sampler) as url, in_process():
        far_profile(settings, url, tokenizer=str(starter_folder()), token_ids=True)
        far = ended(services, collect_rollouts(services, "endpoint:far", **arguments))
        near = ended(services, collect_rollouts(services, "starter", **arguments))
    assert far.status is JobStatus.SUCCEEDED, far.error
    sampled = [
        [s.sampled for run in played(services, job) for s in run.agent_steps if s.sampled] for job in (far, near)
    ]
    assert len(sampled[0]) == 2
    for there, here in zip(*sampled, strict=True):
        assert (there.token_ids, there.tokenizer) == (here.token_ids, here.tokenizer)
        assert there.logprobs == pytest.approx(here.logprobs, abs=1e-4)
    assert far.result.report["output_tokens"] == sum(len(tokens.token_ids) for tokens in sampled[0])

    far_profile(settings, "http://127.0.0.1:9/v1", token_ids=True)
    error = error_of(collect_rollouts, services, "endpoint:far", **arguments)
    assert "a tokenizer beside token_ids = true" in error.message


def test_settings_that_a_server_cannot_follow_are_refused_before_a_job_starts(
    waiting: Services, settings: Settings, environment: str
) -> None:
    def refusal(hyperparameters: dict[str, Any], **arguments: Any) -> tuple[str, str]:
        found = error_of(
            start_training, waiting, "grpo", "starter", **{"environment": environment, **arguments},
            hyperparameters=hyperparameters,
        )  # fmt: skip
        return found.code, found.message

    far_profile(settings, "http://127.0.0.1:9/v1")
    cases = [
        ({**SHORT, "lora": None}, {}, "no_adapter", "set lora to {}"),
        ({**SHORT, "lora": {"dora": True}}, {}, "no_adapter", "dora true"),
        ({**SHORT, "sampler": {"endpoint": "endpoint:fa"}}, {}, "no_endpoint", "far"),
        ({**SHORT, "sampler": {"endpoint": "far"}}, {}, "invalid_input", "endpoint:"),
        ({**SHORT, "self_play": {}}, {"environment": "quintain/nim"}, "no_self_play", "leave one of the two out"),
    ]
    for hyperparameters, arguments, code, words in cases:
        found = refusal(hyperparameters, **arguments)
        assert found[0] == code, found
        assert words in found[1]
    rounds = {"train": "grpo", "training": {name: SHORT[name] for name in ("lora", "sampler")}}
    evolving = error_of(start_training, waiting, "evolve", "starter", environment=environment, hyperparameters=rounds)
    assert evolving.code == "not_online", evolving
    far_profile(settings, "https://example.com", protocol="anthropic")
    assert refusal(SHORT)[0] == "no_logprobs"
