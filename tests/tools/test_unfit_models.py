"""Models and settings that no job can work with are reported before one starts, as far as files show them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf import GGUF_ARCHS
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_TYPES

from gguf_files import header, whole
from quintain.records.agent import Sampling
from quintain.records.dataset import LabelledRow, PairRow, Row
from quintain.records.record import counted
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.evolve import start_evolution
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.planning import estimate, gguf_header
from quintain.tools.training.planning.gguf_header import ARCHITECTURES, VOCABULARIES
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.requests import Request
from quintain.tools.training.start import start_training
from terminal import quintain
from tools.stored_records import add_runs, error_of, freeze_rows, freeze_runs
from trajectory_runs import answer, run, user

ACTING = {"environment": "quintain/inventory", "n_tasks": 1}


@pytest.fixture
def dataset(services: Services) -> str:
    """A dataset of 40 runs; its id."""
    return freeze_runs(services, *(run(f"t{i}", user(f"Task {i}"), answer("Done.")) for i in range(40)))


UNFIT = {
    "cut": (whole()[:-1], "model_damaged", "the file is cut; copy it again"),
    "header cut": (header()[:-1], "model_damaged", "header cannot be read"),
    "no GGUF": (b"PK" + bytes(100), "model_damaged", "not in GGUF version 2 or 3"),
    "part": (whole(split__count=3), "model_damaged", "one of 3 parts: join them"),
    "architecture": (whole(general__architecture="rwkv9"), "unsupported_model", "got 'rwkv9'; name the model's folder"),
    "tokenizer": (whole(tokenizer__ggml__model="plamo2"), "unsupported_model", "got 'plamo2'; name the model's folder"),
    "no tokenizer": (whole(without="tokenizer.ggml.tokens"), "model_incomplete", "convert the model again"),
    "no merges": (whole(without="tokenizer.ggml.merges"), "model_incomplete", "expected merges or scores"),
    "long": (
        whole(tokenizer__ggml__tokens=["a"] * 101),
        "model_incomplete",
        "the model's embeddings, got 101",
    ),
}


def test_a_gguf_file_that_no_job_can_load_is_refused_with_its_fault(
    services: Services, inbox: Path, dataset: str
) -> None:
    (inbox / "m.gguf").write_bytes(whole())
    register_agent(services, "sound", "m.gguf")
    for content, code, words in UNFIT.values():
        (inbox / "m.gguf").write_bytes(content)
        error = error_of(register_agent, services, "other", "m.gguf")
        assert (error.code, words in error.message) == (code, True), error
        for model in ("m.gguf", "sound"):
            plan = plan_training(services, method="sft", model=model, dataset_id=dataset)
            assert [one.code for one in plan.blockers] == [code], plan.blockers


def test_every_tool_refuses_a_gguf_file_that_no_job_can_load_before_a_job_starts(
    services: Services, inbox: Path, dataset: str
) -> None:
    """Named as it is, and by an agent that was registered while the file was sound."""
    content, code, words = UNFIT["architecture"]
    (inbox / "m.gguf").write_bytes(content)
    (inbox / "good.gguf").write_bytes(whole())
    register_agent(services, "sound", "good.gguf")
    (inbox / "good.gguf").write_bytes(content)
    starts: list[Callable[[str], object]] = [
        lambda model: start_training(services, "sft", model, dataset),
        lambda model: start_config(services, {"model": model, "stages": [{"method": "sft", "dataset": dataset}]}),
        lambda model: start_evolution(services, Request(model=model), "quintain/inventory", {}),
        lambda model: evaluate_agent(services, model, **ACTING),
        lambda model: collect_rollouts(services, model, **ACTING),
        lambda model: export_agent(services, model, "merged"),
    ]
    for start in starts:
        for error in (error_of(start, "m.gguf"), error_of(start, "sound")):
            assert (error.code, words in error.message) == (code, True), error
    (inbox / "good.gguf").unlink()
    gone = error_of(evaluate_agent, services, "sound", **ACTING)
    assert (gone.code, "copy it there again" in gone.message) == ("model_not_found", True)
    assert services.store.jobs.page().items == ()


def test_a_whole_file_is_accepted_and_a_later_transformers_decides_itself(
    services: Services, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inbox / "m.gguf").write_bytes(whole())
    assert register_agent(services, "sound", "m.gguf").agent.model.source == "gguf"
    monkeypatch.setattr(gguf_header, "version", lambda library: "5.99.0")
    (inbox / "new.gguf").write_bytes(whole(general__architecture="rwkv9"))
    assert register_agent(services, "new", "new.gguf").agent.model.source == "gguf"
    (inbox / "unknown-type.gguf").write_bytes(header(kind=int(max(gguf.GGML_QUANT_SIZES)) + 1) + bytes(32))
    assert register_agent(services, "later", "unknown-type.gguf").agent.model.source == "gguf"


def test_the_listed_architectures_and_tokenizers_are_those_of_transformers() -> None:
    """Those of transformers are named as its modules are, and the lists as in the files."""
    no_language_models = {"general", "tokenizer", "t5", "umt5"}
    known = {name.replace("_moe", "moe").replace("_", "-") for name in GGUF_CONFIG_MAPPING.keys() - no_language_models}
    assert known | GGUF_ARCHS.keys() == ARCHITECTURES
    assert GGUF_TOKENIZER_TYPES.keys() == VOCABULARIES


def test_rows_and_turns_longer_than_the_context_are_reported_before_the_job_starts(
    waiting: Services, dataset: str, inbox: Path
) -> None:
    (inbox / "m.gguf").write_bytes(whole())  # a context of 512 tokens
    for length, found in ((512, []), (513, ["[beyond_context]"])):
        settings = {"max_length": length, "batch_size": 1}
        started = start_training(waiting, "sft", "m.gguf", dataset, hyperparameters=settings)
        assert [text.split()[0] for text in started.warnings] == found
        plan = plan_training(waiting, method="sft", model="m.gguf", dataset_id=dataset, hyperparameters=settings)
        assert [f"[{one.code}]" for one in plan.blockers] == found
        stage = {"method": "sft", "dataset": dataset, "hyperparameters": settings}
        recipe = start_config(waiting, {"model": "m.gguf", "stages": [stage, stage]})
        assert [text.split()[0] for text in recipe.warnings] == found
        evolution = start_evolution(waiting, Request(model="m.gguf"), "quintain/inventory", {"training": settings})
        assert [text.split()[0] for text in evolution.warnings] == found
        measured = evaluate_agent(waiting, "m.gguf", sampling=Sampling(max_new_tokens=length), **ACTING)
        assert [text.split()[0] for text in measured.warnings] == found
    assert "513 and the model's context has 512 tokens" in started.warnings[0]


def test_acting_in_bf16_on_a_processor_without_it_is_reported_before_the_job_starts(
    waiting: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "has_bf16", lambda: False)
    register_agent(waiting, "narrow", "starter", sampling=Sampling(precision="bf16"))
    for started in (evaluate_agent(waiting, "narrow", **ACTING), collect_rollouts(waiting, "narrow", **ACTING)):
        assert [text.split()[0] for text in started.warnings] == ["[no_bf16]"]
    assert collect_rollouts(waiting, "starter", **ACTING).warnings == ()
    assert collect_rollouts(waiting, "expert", **ACTING).warnings == ()


@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_few_optimizer_steps_are_reported_with_the_batch_size_that_a_plan_takes(waiting: Services, method: str) -> None:
    runs = [run(f"t{i}", user(f"Task {i // 2}"), answer(f"Done {i}.")) for i in range(30)]
    add_runs(waiting, *runs)
    rows: list[Row] = [PairRow(chosen=runs[i], rejected=runs[i + 1]) for i in range(0, 30, 2)]
    if method == "kto":
        rows = [LabelledRow(trajectory=one, desirable=i % 2 == 0) for i, one in enumerate(runs[::2])]
    few = freeze_rows(waiting, method, rows, "few")
    plan = plan_training(waiting, method=method, dataset_id=few)
    size = plan.hyperparameters["batch_size"]
    assert size == (8 if method == "kto" else 2)  # 8 steps an epoch of 3; kto keeps what its KL term is estimated from
    for settings, steps in (({}, 3), ({"epochs": 1}, 1), ({"batch_size": 12}, 6)):
        (warning,) = start_training(waiting, method, "starter", few, hyperparameters=settings).warnings
        batch = settings.get("batch_size", 16)
        at_most = f"[few_steps] 15 rows with batch_size {batch} make at most {counted(steps, 'optimizer step')}; "
        assert warning.startswith(at_most), warning
        (planned,) = warning.calls
        found = plan_training(waiting, **planned.arguments).hyperparameters["batch_size"]
        assert f"set batch_size to {found}, as plan_training(" in warning
    shown = quintain("train", "--method", method, "--dataset", few, "--detach", home=waiting.settings.home)
    assert (shown.returncode, shown.stdout.startswith("job-")) == (0, True)
    assert "[few_steps] 15 rows" in shown.stderr
    for settings in ({"batch_size": size}, {"max_steps": 1}):
        assert start_training(waiting, method, "starter", few, hyperparameters=settings).warnings == ()


def test_a_batch_too_small_for_the_kl_estimate_of_kto_is_reported(waiting: Services) -> None:
    runs = [run(f"t{i}", user(f"Task {i}"), answer(f"Done {i}.")) for i in range(12)]
    add_runs(waiting, *runs)
    rows: list[Row] = [LabelledRow(trajectory=one, desirable=i % 2 == 0) for i, one in enumerate(runs)]
    thumbs = freeze_rows(waiting, "kto", rows, "thumbs")
    for size, found in ((7, ["[small_batch]"]), (8, [])):
        settings = {"batch_size": size}
        started = start_training(waiting, "kto", "starter", thumbs, hyperparameters=settings)
        assert [text.split()[0] for text in started.warnings] == found
        plan = plan_training(waiting, method="kto", dataset_id=thumbs, hyperparameters=settings)
        assert [f"[{one.code}]" for one in plan.blockers] == found
