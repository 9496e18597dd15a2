"""Models, settings and datasets that no job can work with are reported before one starts, as far as files show."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf import GGUF_ARCHS
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_TYPES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)
from typer.testing import CliRunner

from gguf_files import header, string, whole
from mcp_client import ToolCaller
from quintain.cli.main import app
from quintain.datasets.provenance import allowed_models
from quintain.errors import InvalidInput
from quintain.records.agent import ModelRef, Sampling
from quintain.records.dataset import GroupRow, LabelledRow, PairRow, Row
from quintain.records.trajectory import Actor, Step, Trajectory, read_trajectory
from quintain.records.wording import counted
from quintain.settings import Settings
from quintain.tools import RLTrainingTool
from quintain.tools.evaluation.rollouts import collect_rollouts, evaluate_agent
from quintain.tools.jobs.jobs import get_job
from quintain.tools.services import Services
from quintain.tools.training.agents import own_model, register_agent
from quintain.tools.training.config_files import start_config
from quintain.tools.training.export_agent import export_agent
from quintain.tools.training.planning import estimate, gguf_header
from quintain.tools.training.planning.gguf_header import ARCHITECTURES, VOCABULARIES
from quintain.tools.training.planning.loadable_folders import MODEL_TYPES
from quintain.tools.training.planning.model_files import Matrix, ModelFacts, read_model
from quintain.tools.training.planning.plan import plan_training
from quintain.tools.training.requests import Request, require_intact
from quintain.tools.training.start import start_evolution, start_training
from quintain.trainers.models.loading import auto_class
from terminal import quintain
from tiny_models import save_tiny_model, tiny_tokenizer
from tools.dict_calls import Caller
from tools.stored_records import add_runs, error_of, freeze_rows, freeze_runs, write_rows
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


def test_a_folder_without_weights_is_refused_before_a_job_starts_and_is_in_no_advice(
    services: Services, inbox: Path, dataset: str
) -> None:
    (inbox / "bare").mkdir()
    (inbox / "bare" / "config.json").write_text('{"model_type": "qwen2"}')
    for start in (
        lambda: start_training(services, "sft", "bare", dataset),
        lambda: evaluate_agent(services, "bare", **ACTING),
        lambda: export_agent(services, "bare", "merged"),
    ):
        assert "model_damaged" in str(error := error_of(start))
        assert (
            "expected model.safetensors or model.safetensors.index.json in the folder 'bare', got none; copy"
            in error.message
        )
    assert (own_model(services), services.store.jobs.page().items) == ("starter", ())


def test_pickled_weights_are_refused_with_the_command_that_converts_them(services: Services, inbox: Path) -> None:
    folder = save_tiny_model(inbox / "pickled", hidden=16)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    error = error_of(register_agent, services, "old", "pickled")
    assert (
        "got pytorch_model.bin, which can contain code and is not read; convert it beside its folder: " in error.message
    )
    program = error.message.rpartition('python -c "')[2].removesuffix('"')
    with chdir(inbox):
        exec(program)
    register_agent(services, "old", "pickled")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            lambda folder: (folder / "model-00002-of-00003.safetensors").unlink(),
            "expected model-00002-of-00003.safetensors",
        ),
        (
            lambda folder: (folder / "model.safetensors.index.json").unlink(),
            "got model-00001-of-00003.safetensors",
        ),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text('{"weight_map": '),
            "model.safetensors.index.json in the folder 'shards' cannot be read",
        ),
        (lambda folder: os.truncate(folder / "model-00003-of-00003.safetensors", 150), "the file is cut: expected "),
        (
            lambda folder: (folder / "model-00001-of-00003.safetensors").write_text("version https://git-lfs"),
            "cannot be read",
        ),
    ],
    ids=["shard missing", "index missing", "index cut", "shard cut", "pointer of Git LFS"],
)
def test_a_folder_whose_weights_are_not_whole_is_refused_before_a_job_starts(
    services: Services, inbox: Path, dataset: str, fault: Callable[[Path], None], words: str
) -> None:
    folder = inbox / "shards"
    folder.mkdir()
    shards = {f"w{i}": f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
    for name, file in shards.items():
        save_file({name: torch.zeros(64)}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    register_agent(services, "whole", "shards")
    fault(folder)
    for start in (
        lambda: start_training(services, "sft", "whole", dataset),
        lambda: evaluate_agent(services, "whole", **ACTING),
        lambda: export_agent(services, "whole", "merged"),
        lambda: register_agent(services, "again", "shards"),
    ):
        error = error_of(start)
        assert (error.code, words in error.message) == ("model_damaged", True), error
    assert any(words in one.message for one in plan_training(services, model="whole", dataset_id=dataset).blockers)
    assert (own_model(services), services.store.jobs.page().items) == ("starter", ())


def _without_head(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"lm_head.weight": torch.zeros(3, 16)}, folder / "model.safetensors", {"format": "pt"})
    configured(folder, tie_word_embeddings=False)


def configured(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (lambda folder: configured(folder, model_type="bert"), "unsupported_model", "causal language model"),
        (lambda folder: configured(folder, is_encoder_decoder=True), "unsupported_model", "causal language model"),
        (lambda folder: configured(folder, model_type="chatglm"), "unsupported_model", "without remote code"),
        (_without_head, "model_mismatch", "got 1 of the two; save it by AutoModelForCausalLM"),
        (
            lambda folder: configured(folder, num_hidden_layers=3, layer_types=["full_attention"] * 3),
            "model_mismatch",
            "expected 3 layers, as config.json says, in the weights of the folder 'm', got 2",
        ),
        (lambda folder: configured(folder, vocab_size=400), "model_mismatch", "expected at most 400 tokens"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "model_incomplete", "expected tokenizer files"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "model_damaged", "cannot read tokenizer.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "model_damaged", "cannot read config.json"),
    ],
    ids=[
        "encoder",
        "encoder-decoder",
        "remote code",
        "head",
        "layers",
        "embeddings",
        "no tokenizer",
        "tokenizer",
        "configuration",
    ],
)
def test_a_folder_of_no_causal_model_or_of_files_of_several_is_refused_before_a_job_starts(
    services: Services, inbox: Path, fault: Callable[[Path], None], code: str, words: str
) -> None:
    folder = save_tiny_model(inbox / "m", hidden=16)
    register_agent(services, "whole", "m")
    fault(folder)
    for start in (lambda: register_agent(services, "again", "m"), lambda: evaluate_agent(services, "whole", **ACTING)):
        error = error_of(start)
        assert (error.code, words in error.message) == (code, True), error


def test_embeddings_that_the_whole_model_ties_need_no_output_layer_whatever_its_text_part_says(
    services: Services, inbox: Path
) -> None:
    """As transformers saves models of the kind of Mistral 3."""
    configured(save_tiny_model(inbox / "m", hidden=16), text_config={"tie_word_embeddings": False})
    register_agent(services, "reads-images", "m")


def test_an_added_pad_token_needs_no_embedding_and_another_token_does(services: Services, inbox: Path) -> None:
    folder = save_tiny_model(inbox / "m", hidden=16)
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(folder)
    register_agent(services, "padded", "m")
    tokenizer.add_tokens(["<call>"])
    tokenizer.save_pretrained(folder)
    assert error_of(register_agent, services, "again", "m").code == "model_mismatch"


def test_the_listed_types_are_the_causal_models_of_transformers() -> None:
    """Those with a masked form are encoders."""
    known = {*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES}
    causal = known - MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys()
    assert causal >= MODEL_TYPES
    assert all(CONFIG_MAPPING[kind].is_encoder_decoder for kind in causal - MODEL_TYPES)
    with pytest.raises(InvalidInput, match="got 'bart'"):
        auto_class(CONFIG_MAPPING["bart"]())


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
        assert get_job(waiting, started.job_id).warnings == started.warnings, "who did not start it sees them, too"
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
        started = start_training(waiting, method, "starter", few, hyperparameters=settings)
        (warning,), (kept,) = started.warnings, get_job(waiting, started.job_id).warnings
        batch = settings.get("batch_size", 16)
        at_most = f"[few_steps] 15 rows with batch_size {batch} make at most {counted(steps, 'optimizer step')}; "
        assert warning.startswith(at_most), warning
        (planned,) = warning.calls
        assert (kept, kept.calls) == (warning, warning.calls), "a page and a terminal name it their way"
        found = plan_training(waiting, **planned.arguments).hyperparameters["batch_size"]
        assert f"set batch_size to {found}, as plan_training(" in warning
    recipe = {"model": "starter", "stages": [{"method": method, "dataset": few, "hyperparameters": settings}]}
    assert start_config(waiting, recipe).warnings == (warning,)
    shown = quintain("train", "--method", method, "--dataset", few, "--detach", home=waiting.settings.home)
    assert (shown.returncode, shown.stdout.startswith("job-")) == (0, True)
    assert "[few_steps] 15 rows" in shown.stderr
    for settings in ({"batch_size": size}, {"max_steps": 1}):
        assert start_training(waiting, method, "starter", few, hyperparameters=settings).warnings == ()
    (early,) = start_training(waiting, method, "starter", few, hyperparameters={"max_steps": 60}).warnings
    assert (
        early
        == "[early_end] max_steps is 60, and 3 epochs end after 3 optimizer steps; raise epochs to train that long"
    )


def test_runs_under_another_system_prompt_than_the_agents_own_are_reported(waiting: Services) -> None:
    """Runs keep the prompt that they were recorded with, and the new agent acts under its model's."""
    register_agent(waiting, "clerk", "starter", system_prompt="You are a clerk.")
    prompts = {"none": (), "other": ("You sell fruit.",), "own": ("You are a clerk. Today is Monday.",)}
    for name, texts in prompts.items():
        head = [Step(actor=Actor.SYSTEM, message=text) for text in texts]
        runs = freeze_runs(waiting, *(run(f"{name}{i}", *head, user(), answer(f"{i}.")) for i in range(12)), name=name)
        found = [] if name == "own" else ["other_prompt"]
        assert [one.code for one in plan_training(waiting, dataset_id=runs, model="clerk").blockers] == found
        warned = start_training(waiting, "sft", "clerk", runs, hyperparameters={"max_steps": 1}).warnings
        assert [text.split()[0] for text in warned] == [f"[{code}]" for code in found]
    assert plan_training(waiting, dataset_id="other").blockers == ()


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


def test_settings_that_files_share_and_that_have_no_effect_on_the_source_are_reported(waiting: Services) -> None:
    pairs = [
        (run(f"t{i}", user(f"Task {i}"), answer("Good.")), run(f"t{i}", user(f"Task {i}"), answer("Bad.")))
        for i in range(12)
    ]
    add_runs(waiting, *(one for pair in pairs for one in pair))
    rows: list[Row] = [GroupRow(key=f"t{i}", trajectories=pair, rewards=(1.0, 0.0)) for i, pair in enumerate(pairs)]
    groups = {"dataset": freeze_rows(waiting, "grpo", rows, "groups")}
    acting = {"environment": "quintain/inventory"}
    for source, settings, words in (
        (
            acting,
            {"epochs": 2, "batch_size": 4},
            "epochs and batch_size have no effect in an environment; give rollouts",
        ),
        (
            groups,
            {"batch_size": 1, "temperature": 0.5},
            "temperature has no effect on a dataset; leave it out, or give",
        ),
        (
            acting,
            {"early_stopping_patience": 2},
            "there are no validation rows, so early_stopping_patience has no effect; give evaluate_every_steps",
        ),
        (
            groups,
            {"batch_size": 1, "early_stopping_patience": 2},
            "there are no validation rows, so early_stopping_patience has no effect; export_dataset(kind='grpo', name='groups'",
        ),
    ):
        stage = {"method": "grpo", "hyperparameters": settings, **source}
        for document in (stage, {"stages": [stage]}):
            (warning,) = start_config(waiting, document).warnings
            assert warning.startswith(f"[no_effect] {words}"), warning


def read(folder: Path, content: bytes) -> ModelFacts | str:
    (folder / "m.gguf").write_bytes(content)
    return read_model(ModelRef(source="gguf", path=str(folder / "m.gguf")))


def test_sizes_are_those_of_the_dequantised_model_by_the_names_of_transformers(tmp_path: Path) -> None:
    """100 x 8 embeddings that are the head too, 8 x 8 and 8 x 12 in the block, 8 in the norm: 968; 2 heads of 4."""
    facts = read(tmp_path, whole())
    assert facts.matrices == (Matrix("q_proj", 8, 8), Matrix("down_proj", 8, 12))
    assert (facts.parameters, facts.body, facts.head) == (968, 160, 800)
    assert (facts.hidden, facts.intermediate, facts.layers, facts.attention_width) == (8, 12, 1, 8)
    assert (facts.vocabulary, facts.context_tokens) == (100, 512)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"GGUF",
        b"PK" + header()[2:],
        header()[:-1],
        header(n_tensors=2**62),
        header(tensors={"token_embd.weight": (2**40, 2**40)}),
        header(tensors={"blk.0.attn_q.weight": (8, 8)}),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<IIQ", 9, 4, 2**61),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k") + struct.pack("<IIQ", 9, 9, 2**61),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60) + bytes(100_000),
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63),
    ],
    ids=range(11),
)
def test_a_damaged_or_hostile_header_gives_a_reason(tmp_path: Path, content: bytes) -> None:
    reason = read(tmp_path, content)
    assert isinstance(reason, str)
    assert "cannot be read" in reason


RUN = {"task": {"prompt": "Go"}, "outcome": {"status": "success"}}


def with_models(*models: str) -> dict[str, object]:
    return RUN | {"steps": [{"actor": "agent", "message": "m", "model": model} for model in models]}


def test_a_bad_setting_is_one_line_and_status_2(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUINTAIN_MODEL_TERMS", "zzz")
    for command in (["jobs"], ["serve"], ["doctor"], ["lineage", "x"]):
        done = CliRunner().invoke(app, [*command, "--home", str(home)])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert "QUINTAIN_MODEL_TERMS is 'zzz'" in done.stderr
        assert "'allow'" in done.stderr
    with pytest.raises(InvalidInput, match="bad_setting"):
        RLTrainingTool(home)


def test_blocked_terms_are_refused_with_their_globs_and_without_advice_on_disks(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUINTAIN_MODEL_TERMS", "block")
    tool = Caller(home)
    names = [
        tool(action="record", trajectory=with_models(model))["trajectory_id"]
        for model in ("us.anthropic.claude-3-5-sonnet-v2", "qwen3")
    ]
    asked = {"action": "export", "kind": "sft", "trajectory_ids": names}
    refused = tool(**asked, name="a")
    assert refused["code"] == "model_terms"
    assert '"!restricted"' in refused["message"]
    assert '"!claude-3-5-sonnet-v2"' in refused["message"]
    assert "disk" not in refused["message"]
    kept = tool(**asked, name="b", curation={"source_models": ["!restricted"]})
    assert (kept["rows"], kept["dropped"]) == (1, {"source_model": 1})


def test_the_shorthand_covers_a_restricted_model_under_another_name_of_it() -> None:
    for model, restricted in (("us-gov.anthropic.claude-3", True), ("qwen3", False)):
        run = Trajectory(steps=(Step(actor=Actor.AGENT, message="m", model=model),))
        assert allowed_models(run, ["restricted"]) is restricted
        assert allowed_models(run, ["!restricted"]) is not restricted


def test_training_on_a_dataset_that_was_changed_or_lost_is_refused_at_once(tool: Caller) -> None:
    name = tool(action="record", trajectory=with_models("qwen3"))["trajectory_id"]
    made = tool(action="export", kind="sft", name="d", trajectory_ids=[name])
    assert made["next_step"].endswith("Methods that learn from it too: bc, distill, retriever.")
    rows = Path(made["path"]) / "train.jsonl"
    asked = {"action": "start_training", "method": "sft", "model": "starter", "dataset_id": "d"}
    later = (Path(made["path"]) / "manifest.json").stat().st_mtime_ns + 10**9
    os.utime(rows, ns=(later, later))  # touched, and not changed: another fault is found
    assert tool(**asked | {"method": "dpo"})["code"] == "wrong_dataset_kind"
    require_intact(tool._open().store.datasets.get("d"))
    before = rows.read_bytes()
    rows.write_bytes(before.replace(b'"m"', b'"n"'))
    changed = tool(**asked)
    assert (changed["code"], "changed on disk" in changed["message"]) == ("dataset_damaged", True)
    rows.unlink()
    lost = tool(**asked)
    assert (lost["code"], "train.jsonl" in lost["message"]) == ("dataset_damaged", True)
    assert tool(action="jobs")["items"] == []


def test_relative_models_of_an_untrusted_caller_lie_below_the_inbox(
    settings: Settings, tmp_path: Path, ask: ToolCaller
) -> None:
    outside = tmp_path / "x"
    outside.mkdir()
    (outside / "config.json").write_text("{}")
    inside = settings.inbox_dir / "mine"
    inside.mkdir(parents=True)
    (inside / "config.json").write_text("{}")
    save_file({"w": torch.zeros(1)}, inside / "model.safetensors")

    assert ask("register_agent", name="a", model="mine")["agent"]["model"]["path"] == str(inside.resolve())
    for model, code in (("../../x", "outside_roots"), ("", "invalid_input"), ("./none", "model_not_found")):
        (error,) = ask.refused("register_agent", {"name": "b", "model": model})
        assert f"[{code}]" in error
        assert str(Path.cwd()) not in error


def test_a_bad_member_is_one_fault_not_two() -> None:
    with pytest.raises(InvalidInput) as raised:
        read_trajectory({"steps": [{"actor": "robot", "message": "m"}]})
    assert "robot" in raised.value.message
    assert "at least 1 item" not in raised.value.message
    with pytest.raises(InvalidInput, match="at least 1 item"):
        read_trajectory({"steps": []})


def test_single_labelled_answers_are_no_pairs_and_the_advice_fits_rows(tool: Caller, home: Path) -> None:
    rows = [{"prompt": f"p{n}", "completion": "c", "label": bool(n % 2)} for n in range(4)]
    path = write_rows(home / "inbox" / "rows.jsonl", *rows)
    refused = tool(action="export", kind="dpo", name="d", path=str(path))
    assert "pairs need fields chosen and rejected" in refused["message"]
    assert "collect_rollouts" not in refused["message"]
