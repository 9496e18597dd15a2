"""Starting trainings: by method, from a config file, as a recipe or an evolution. What is wrong is told before anything is made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from quintain.cli.commands.evolve import _show
from quintain.cli.main import app
from quintain.errors import Conflict, InvalidInput
from quintain.records.agent import Sampling
from quintain.records.dataset import Dataset, DatasetRow, PairRow, TextRow
from quintain.records.documents import parse_yaml, read_document
from quintain.records.hyperparameters.methods import CONFIGS, DATASET_KINDS, LoraConfig
from quintain.records.jobs.evolve import EvolveConfig, round_dataset_id
from quintain.records.jobs.job import EvolveSpec, JobResult
from quintain.records.jobs.recipe import EvaluateStage, TrainStage
from quintain.server.guide import method_page
from quintain.settings import Settings
from quintain.tools.data.forgetting import forget
from quintain.tools.jobs.jobs import cancel_job, resume_job, view_of
from quintain.tools.results import JobStarted
from quintain.tools.services import Services
from quintain.tools.training.agents import register_agent
from quintain.tools.training.config_files import settings_of, start_config
from quintain.tools.training.methods import METHODS, describe_method, list_methods, read_hyperparameters
from quintain.tools.training.start import start_training
from tools.dict_calls import Caller
from tools.stored_records import add_runs, error_of, freeze_rows, freeze_runs, spec_of
from trajectory_runs import answer, run, user

ENVIRONMENT = "quintain/inventory"


@pytest.fixture
def datasets(services: Services) -> dict[str, str]:
    """One dataset of each of the kinds sft, dpo and text, by kind."""
    good, bad = run("t1", user(), answer("Done.")), run("t1", user(), answer("No idea."))
    add_runs(services, good, bad)
    rows = {
        "sft": DatasetRow(trajectory=good),
        "dpo": PairRow(chosen=good, rejected=bad),
        "text": TextRow(text="Boxes."),
    }
    return {kind: freeze_rows(services, kind, [row]) for kind, row in rows.items()}


@pytest.fixture
def three(services: Services) -> str:
    """A dataset `three` of three runs, the only one; its id."""
    return freeze_runs(services, *(run(f"t{i}", user(), answer("Done.")) for i in range(3)), name="three")


UNFIT: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("dpo", {"dataset_id": "some-sft"}, "wrong_dataset_kind", ["'sft'", "'dpo'", "export_dataset(kind='dpo'"]),
    ("sft", {"dataset_id": "some-dpo"}, "wrong_dataset_kind", ["export_dataset(kind='sft'", "orpo"]),
    ("kto", {"dataset_id": "some-dpo"}, "wrong_dataset_kind", ["'kto'", "dpo, orpo, simpo"]),
    ("pretrain", {"dataset_id": "some-sft"}, "wrong_dataset_kind", ["'text'", "config file"]),
    ("sft", {}, "invalid_input", ["needs a dataset", "'sft'", "export_dataset"]),
    ("dpo", {}, "invalid_input", ["one of the two", "`environment`", "'dpo'"]),
    ("grpo", {}, "invalid_input", ["one of the two", "`environment`", "'grpo'"]),
    ("grpo", {"dataset_id": "d", "environment": ENVIRONMENT}, "invalid_input", ["one of the two"]),
    ("sft", {"environment": ENVIRONMENT}, "not_online", ["grpo", "collect_rollouts", "'sft'"]),
    ("ppo", {}, "no_environment", ["only by acting", "no environment", "list_library"]),
    ("ppo", {"dataset_id": "some-sft"}, "no_environment", ["the dataset 'some-sft'", "grpo"]),
    ("ppo", {"dataset_id": "some-sft", "environment": ENVIRONMENT}, "no_environment", ["the dataset 'some-sft'"]),
    ("grpo", {"environment": "moon"}, "environment_not_found", ["moon", ENVIRONMENT, "quintain/tasks?file=PATH"]),
    ("grpo", {"environment": "my quiz.csv"}, "environment_not_found", ["quintain/tasks?file=my+quiz.csv"]),
    ("sft", {"dataset_id": "none"}, "not_found", ["none"]),
    (
        "dpo",
        {"environment": ENVIRONMENT, "hyperparameters": {"max_pairs_per_task": 4}},
        "invalid_input",
        ["max_pairs_per_task is 4", "'best_worst'", "all_pairs"],
    ),
    (
        "distill",
        {"environment": ENVIRONMENT, "hyperparameters": {"teacher": "starter", "teacher_top_k": 5}},
        "invalid_input",
        ["teacher_top_k would have no effect in an environment", "leave it out"],
    ),
    (
        "grpo",
        {
            "environment": {ENVIRONMENT: 1, "quintain/math": 1},
            "hyperparameters": {
                "constraint": {"limit": 0, "cost": {"type": "calls", "tool": "serch", "full_at": 1, "zero_at": 0}}
            },
        },
        "unknown_tool",
        ["one of ", "'serch' (did you mean 'search'?)"],
    ),
]
"""Method, further arguments, the code of the error, and words of its message."""
UNFIT_SETTINGS: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("ppo", {"advantage": "rloo"}, "invalid_input", ["group_size is 1", "set group_size to 2 or more"]),
    ("ppo", {"advantage": "reinforce_pp", "vf_coef": 0.5}, "invalid_input", ["value_weight is 0.5", "no value head"]),
    ("ppo", {"kl_target": 0.1, "kl_coef": 0}, "invalid_input", ["kl_target is 0.1", "kl_coefficient above 0"]),
    ("ppo", {"minibatches": 3}, "invalid_input", ["updates_per_rollout is 4", "minibatches 3"]),
    (
        "evolve",
        {"train": "grpo", "training": {"constraint": {"limit": 0.1}}},
        "not_online",
        ["constraint would have no effect", "`environment`"],
    ),
    (
        "grpo",
        {"constraint": {"limit": 0.1, "cost": {"type": "calls", "tool": "open"}}},
        "invalid_input",
        ["a cost of calls(tool=open) is highest for few", "state full_at above zero_at"],
    ),
    ("sft", {"kl_stop": 0.1}, "not_online", ["kl_stop would have no effect", "early_stopping_patience"]),
    ("sft", {"load_in_8bit": True}, "invalid_input", ["quantization is 'int8'", "set lora to {}"]),
    ("dpo", {"gamma": 1}, "invalid_input", ["hyperparameters.gamma", "fields of dpo", "beta"]),
    (
        "dpo",
        {"pairs": "all_pairs", "num_generations": 4},
        "not_online",
        ["group_size, pairs would have no effect", "`environment`"],
    ),
]
"""Method, its settings in the environment or on the dataset `some-METHOD`, the code of the error, and words of its message."""


def test_a_request_that_does_not_fit_is_told_what_would(services: Services, datasets: dict[str, str]) -> None:
    cases = [*UNFIT]
    for method, given, code, words in UNFIT_SETTINGS:
        source = {"dataset_id": f"some-{method}"} if method in datasets else {"environment": ENVIRONMENT}
        cases.append((method, {**source, "hyperparameters": given}, code, words))
    for method, more, code, words in cases:
        error = error_of(start_training, services, method, "starter", **more)
        assert error.code == code, error
        assert [word for word in words if word not in error.message] == [], error.message
    assert services.store.jobs.page().items == ()


def test_a_spec_holds_the_checked_settings_and_where_later_jobs_share(
    waiting: Services, datasets: dict[str, str]
) -> None:
    settings = {"lr": 1e-3, "use_lora": True, "lora_r": 4}
    started = start_training(waiting, "dpo", "starter", dataset_id="some-dpo", hyperparameters=settings)
    spec = spec_of(waiting, started)
    assert (spec.method, spec.dataset_id, spec.name) == ("dpo", datasets["dpo"], "starter-dpo")
    assert (spec.config.learning_rate, spec.config.lora) == (1e-3, LoraConfig(rank=4))
    assert spec.cache_dir == str(waiting.settings.home / "cache")
    named_otherwise = {"learning_rate": 1e-3, "lora": {"rank": 4}}
    again = start_training(waiting, "dpo", "starter", dataset_id="some-dpo", hyperparameters=named_otherwise)
    assert (again.job_id, again.deduplicated) == (started.job_id, True), "the same request, whatever its words"


def test_every_method_is_described_with_all_of_its_settings_once(settings: Settings) -> None:
    configs = {**CONFIGS, "evolve": EvolveConfig}
    kinds = {**DATASET_KINDS, "evolve": None}
    assert set(METHODS) == set(configs)
    shared, *methods = list_methods("")
    for outline in methods:
        method = outline["method"]
        about = describe_method(method)
        assert about["dataset_kind"] == outline["dataset_kind"] == kinds[method]
        (own,) = list_methods(method.upper())
        assert own["hyperparameters"] == {name: about["hyperparameters"][name] for name in outline["hyperparameters"]}
        top = {name for name in about["hyperparameters"] if "." not in name}
        assert top == set(configs[method].model_fields) - {"method"}
        listed = {**shared["hyperparameters"], **outline["hyperparameters"]}
        assert all(line.startswith(f"{listed[name]}: ") for name, line in about["hyperparameters"].items())
    assert (
        list_methods("*")[0]["hyperparameters"]["grad_clip"]
        == "default 1.0, 0 to 1000: Bound of the gradient norm; 0: off."
    )
    assert {one["method"]: list(one["hyperparameters"]) for one in list_methods("label_smoothing")} == {
        "dpo": ["label_smoothing"]
    }
    assert {"dpo", "orpo", "simpo"} <= {one["method"] for one in list_methods("preference optimisation")}
    unfiltered = list_methods(None)
    assert [one["method"] for one in unfiltered] == ["*", *METHODS]
    assert unfiltered[0]["hyperparameters"] == shared["hyperparameters"]
    assert all(one["hyperparameters"] is None for one in unfiltered[1:])
    assert len(json.dumps(unfiltered)) < 4 * 1_600, "an assistant reads this whole to choose one"


FLAT = "method: sft\nnum_train_epochs: 2\nlr: 1e-4\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 2\n"
NESTED = {"method": "sft", "hyperparameters": {"epochs": 2, "learning_rate": 1e-4, "batch_size": 8}}


def test_a_config_file_reads_alike_in_yaml_and_json_in_these_names_and_others(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FLAT, encoding="utf-8")
    (tmp_path / "nested.json").write_text(json.dumps(NESTED), encoding="utf-8")
    flat, nested = (read_document(tmp_path / name) for name in ("flat.yaml", "nested.json"))
    config = read_hyperparameters("sft", settings_of(flat))
    assert (flat["method"], config) == (nested["method"], read_hyperparameters("sft", settings_of(nested)))
    assert (config.epochs, config.learning_rate, config.batch_size) == (2, 1e-4, 8)


WRONG_CONFIGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"hyperparameters": {}}, ["`method`: expected the name of a training method", "got none"]),
    ({"method": "sff"}, ["'sff'", "did you mean 'sft'"]),
    ({"method": "sft", "dataset": "some-sft", "epochs": 1, "hyperparameters": {}}, ["'epochs'", "valid: method"]),
    ({"method": "sft", "hyperparameters": [1]}, ["expected hyperparameters to be a mapping", "got [1]"]),
    ({"method": "sft", "dataset": "some-sft", "max_samples": 0}, ["max_samples: ", "got 0"]),
    ({"method": "sft", "dataset": "a.json,b.json"}, ["expected one, got 'a.json,b.json'", "export with path A+B"]),
    ({"method": "sft", "dataset": "some-sft", "val_set_size": 500}, ["validation_share: ", "got 500"]),
    ({"method": "sft", "dataset": "some-sft", "val_size": 0.1, "max_samples": 2}, ["beside max_samples; export"]),
    ({"method": "sft", "dataset": "some-sft", "val_size": 0.1}, ["has its split already"]),
    ({"method": "sft", "text": "notes.txt"}, ["does not learn from plain text", "pretrain"]),
    ({"method": "pretrain", "text": "none/*.txt"}, ["none/*.txt", "no file"]),
    ({"method": "pretrain", "text": []}, ["expected text to be a path", "got []"]),
    ({"method": "pretrain", "text": "notes.txt", "dataset": "some-text"}, ["`text`, `dataset`", "keep one"]),
    ({"stages": {}}, ["expected stages to be a list", "got {}"]),
    ({"stages": []}, ["recipe.stages", "at least 1"]),
    ({"stages": [{"method": "sft", "dataset": "some-sft"}], "method": "sft"}, ["recipe has no argument 'method'"]),
    ({"stages": [{"method": "sft", "dataset": "some-sft"}, {"method": "dpo", "dataset": "some-sft"}]}, ["stages[1]"]),
    ({"stages": [{"method": "evaluate", "environment": "moon"}]}, ["stages[0]", "moon"]),
    ({"stages": [{"method": "evaluate", "environment": ENVIRONMENT, "n_tasks": 0}]}, ["stages[0].n_tasks", "got 0"]),
    ({"stages": [{"method": "evaluate", "environment": "quintain/nim"}]}, ["stages[0]", "give `opponent`: expert"]),
    ({"stages": [{"method": "evaluate", "environment": ENVIRONMENT, "opponent": "expert"}]}, ["an agent acts alone"]),
    (
        {"stages": [{"method": "evaluate", "environ": ENVIRONMENT}]},
        ["stages[0]: the stage has", "did you mean 'environment'"],
    ),
    ({"stages": [{"method": "sft", "dataset": "some-sft", "agent": "starter"}]}, ["stages[0]", "embedded model"]),
    ({"stages": [{"method": "sft", "dataset": "some-sft", "label": "a/b"}]}, ["stages[0].label", "a/b"]),
    (
        {"stages": [{"method": "pretrain", "text": "notes.txt"}, {"method": "sft", "dataset": "none"}]},
        ["stages[1]", "none"],
    ),
    (
        {"stages": [{"method": "dpo", "dataset": "some-dpo", "hyperparameters": {"rollouts": 5}}]},
        ["stages[0]: rollouts would have no effect"],
    ),
]


def test_a_wrong_config_makes_nothing_and_names_the_place(
    services: Services, datasets: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("Boxes are red.", encoding="utf-8")
    for document, words in WRONG_CONFIGS:
        error = error_of(start_config, services, document, folder=tmp_path)
        assert [word for word in words if word not in error.message] == [], error.message
    assert "each of its stages" in error_of(start_config, services, {"stages": []}, {"epochs": 1}).message
    assert services.store.jobs.page().items == ()
    assert len(services.store.datasets.page().items) == len(datasets), "no dataset is left behind"


HOSTILE: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": "starter"}, ["embedded model"]),
    ({"name": 5}, ["name", "string", "got 5", "Name of the new agent"]),
    ({"name": "a b"}, ["name", "'a b'"]),
    ({"seed": "abc"}, ["seed", "'abc'", "0 to 2147483647"]),
    ({"seed": [1]}, ["seed", "[1]", "0 to 2147483647"]),
    ({"seed": True}, ["seed", "expected a number, got a boolean"]),
    ({"seed": -4}, ["seed", "-4", "0 to 2147483647"]),
    ({"seed": 99999999999999999999999}, ["seed", "2147483647"]),
    ({"request_key": 7}, ["request_key", "string", "got 7"]),
    ({"request_key": "k" * 201}, ["request_key", "200"]),
    ({"model": None}, ["model", "string", "got None"]),
    ({"name": "x\ud800"}, ["name", "U+D800"]),
]
SOURCES: list[dict[str, Any]] = [
    {"method": "sft", "dataset": "three", "max_samples": 2},
    {"method": "pretrain", "text": "notes.txt"},
]


def test_nothing_is_made_for_a_request_that_is_refused(waiting: Services, three: str, tmp_path: Path) -> None:
    """Trainings and recipes, of a sample and of a text."""
    (tmp_path / "notes.txt").write_text("Boxes are red.", encoding="utf-8")
    documents = [
        ({**form, **hostile}, words)
        for hostile, words in HOSTILE
        for source in SOURCES
        for form in (source, {"stages": [source]})
    ]
    for document, words in documents:
        error = error_of(start_config, waiting, document, folder=tmp_path)
        assert [word for word in words if word not in error.message] == [], error.message
    assert [dataset.id for dataset in waiting.store.datasets.page().items] == [three]
    assert [folder.name for folder in waiting.settings.datasets_dir.iterdir()] == [three]
    assert waiting.store.jobs.page().items == ()


def test_a_file_of_another_trainer_is_told_which_defaults_are_those_of_this_one(waiting: Services, three: str) -> None:
    file = {"method": "sft", "dataset": three, "num_train_epochs": 1, "warmup_steps": 5, "lora_r": 8, "max_length": 512}
    left = (
        'learning_rate null, batch_size 16, schedule "cosine", lora.alpha 32.0, lora.targets "all-linear"; state those'
    )
    assert f"[left_open] the file leaves these at the defaults here: {left}" in str(
        start_config(waiting, file).warnings
    )
    named = start_config(waiting, file | {"template": "llama3", "trust_remote_code": True}).warnings
    assert any(str(note).startswith("[template] the file names the template 'llama3'") for note in named)
    own = {"method": "sft", "dataset": three, "hyperparameters": {"epochs": 1}}
    assert "[left_open]" not in str(start_config(waiting, own).warnings)


def test_a_stage_that_measures_takes_the_agents_sampling_where_it_states_none(waiting: Services) -> None:
    register_agent(waiting, "warm", "starter", sampling=Sampling(temperature=0.7))
    short = {"method": "evaluate", "environment": INVENTORY, "sampling": {"max_new_tokens": 64}}
    (stage,) = spec_of(waiting, start_config(waiting, {"model": "warm", "stages": [short]})).stages
    assert (stage.sampling.temperature, stage.sampling.max_new_tokens) == (0.7, 64)


def test_a_file_of_another_trainer_is_read_alike_by_call_and_command(
    waiting: Services, three: str, tmp_path: Path, tool: Caller
) -> None:
    document = {"method": "sft", "dataset": three, "model_name_or_path": "starter", "save_path": str(tmp_path / "copy")}
    file = tmp_path / "sft.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    first = start_config(waiting, document)
    answer = tool(config=str(file), wait=False)
    assert (answer["job_id"], (tmp_path / "copy").is_dir()) == (first.job_id, True)
    ran = CliRunner().invoke(app, ["train", "--config", str(file), "--detach", "--home", str(waiting.settings.home)])
    assert (ran.stdout.strip(), "[left_open]" in ran.stderr) == (first.job_id, True)
    assert f"{tmp_path / 'copy'} gets no copy" in ran.stderr


def test_the_share_of_another_trainers_file_is_held_out_from_a_file_of_rows(waiting: Services, tmp_path: Path) -> None:
    rows = "".join(f'{{"prompt": "Task {n}", "response": "Done."}}\n' for n in range(8))
    (tmp_path / "rows.jsonl").write_text(rows, encoding="utf-8")
    for share in (0.5, 0):
        file = {"method": "sft", "datasets": [{"path": "rows.jsonl", "type": "alpaca"}], "val_set_size": share}
        spec = spec_of(waiting, start_config(waiting, file, folder=tmp_path))
        splits = waiting.store.datasets.get(spec.dataset_id).splits
        assert (sum(splits.values()), bool(splits.get("validation"))) == (8, share > 0)


def test_the_dataset_of_an_axolotl_file_is_taken_if_its_keys_say_what_is_read_anyway(
    waiting: Services, tmp_path: Path
) -> None:
    """A part of a split, or another column, would be other rows."""
    sides = {side: {"role": "assistant", "content": side} for side in ("chosen", "rejected")}
    asked = {"messages": [{"role": "user", "content": "Hello?"}]}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(asked | sides), encoding="utf-8")
    keys = {"type": "chat_template.default", "field_messages": "messages", "field_chosen": "chosen"}
    file = {"rl": "simpo", "rl_beta": 2.0, "simpo_gamma": 1.0, "cpo_alpha": 0.0, "chat_template": "llama3"}
    taken = start_config(waiting, file | {"datasets": [{"path": "pairs.jsonl"} | keys]}, folder=tmp_path)
    config = spec_of(waiting, taken).config
    assert (config.method, config.beta, config.gamma) == ("simpo", 2.0, 1.0)
    part = file | {"datasets": [{"path": "pairs.jsonl", "split": "train[:20%]"} | keys]}
    error = error_of(start_config, waiting, part, folder=tmp_path)
    assert "got {'split': 'train[:20%]'} for pairs.jsonl; export the rows that are meant" in error.message


def test_a_dataset_that_llama_factory_lists_is_its_file(waiting: Services, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.json").write_text('[{"instruction": "2+2?", "output": "4"}]', encoding="utf-8")
    listed = {"file_name": "mine.json", "columns": {"prompt": "instruction", "response": "output"}}
    other = {"file_name": "mine.json", "columns": {"prompt": "instruction", "response": "answer"}}
    listing = json.dumps({"mine": listed, "other": other, "far": {"hf_hub_url": "org/rows"}})
    (tmp_path / "data" / "dataset_info.json").write_text(listing, encoding="utf-8")
    file = {"stage": "sft", "model_name_or_path": "starter", "finetuning_type": "full"}
    folder = tmp_path / "examples" / "train_full"
    spec = spec_of(waiting, start_config(waiting, file | {"dataset": "mine", "dataset_dir": "data"}, folder=folder))
    assert waiting.store.datasets.get(spec.dataset_id).rows == 1
    for name, words in (("other", "got {'response': 'answer'} in dataset_info.json"), ("far", "got 'far'")):
        assert words in error_of(start_config, waiting, file | {"dataset": name}, folder=folder).message


WRONG_STAGES: list[tuple[dict[Any, Any], list[str]]] = [
    ({"method": "sft", "dataset": [1]}, ["stages[1]", "dataset: ", "got [1]", "quotes"]),
    ({"method": "grpo", "environment": {}}, ["stages[1]", "1 to 50 environments, got 0"]),
    ({"method": "sft", "dataset": "three", "label": 5}, ["stages[1].label", "got 5"]),
    ({"method": "sft", "dataset": "three", 5: 1}, ["stages[1]", "no argument 5"]),
    ({"method": "pretrain", "text": "binary.txt"}, ["stages[1]", "binary.txt: not UTF-8 text"]),
    ({"method": "pretrain", "text": "empty.txt"}, ["stages[1]", "none of 1 texts"]),
    ({"method": "pretrain", "text": "x" * 5000}, ["stages[1]", "no file is"]),
    ({"method": "pretrain", "text": "~no_such_user/a"}, ["stages[1]", "no file is"]),
    ({"method": "evaluate", "environment": ENVIRONMENT, "seed": 2**31}, ["stages[1].seed", "2147483647"]),
]


def test_a_stage_that_is_refused_leaves_no_dataset_of_the_stage_before(
    waiting: Services, three: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("Boxes are red.", encoding="utf-8")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "empty.txt").write_text(" ", encoding="utf-8")
    for second, words in WRONG_STAGES:
        error = error_of(start_config, waiting, {"stages": [SOURCES[1], second]}, folder=tmp_path)
        assert [word for word in words if word not in error.message] == [], error.message
        assert len(error.message) < 600
    assert [dataset.id for dataset in waiting.store.datasets.page().items] == [three]


def test_the_same_samples_are_the_same_dataset_unless_it_is_gone(waiting: Services, three: str) -> None:
    first, second = (start_config(waiting, {**SOURCES[0], "name": name}) for name in ("a", "b"))
    (sample,) = {spec_of(waiting, job).dataset_id for job in (first, second)}
    part = waiting.store.datasets.get(sample)
    assert (part.rows, len(waiting.store.datasets.page().items)) == (2, 2)
    shutil.rmtree(part.path)
    third = start_config(waiting, {**SOURCES[0], "name": "c"})
    assert spec_of(waiting, third).dataset_id not in {three, sample}


WRONG_CALLS: list[tuple[dict[str, Any], list[str]]] = [
    ({"seed": True}, ["seed", "expected a number"]),
    ({"algorithm": "dpo"}, ["kind 'sft'", "'dpo'"]),
    ({"environment": ENVIRONMENT}, ["a dataset"]),
    ({"output_dir": "/proc/x"}, ["/proc/x"]),
    ({"max_samples": True}, ["expected max_samples to be a whole number", "got True"]),
]


def test_a_dict_call_that_is_refused_leaves_no_sample(
    waiting: Services, three: str, tmp_path: Path, tool: Caller
) -> None:
    for parameters, words in WRONG_CALLS:
        answer = tool(**{"dataset": "three", "max_samples": 2, "output_dir": str(tmp_path / "out"), **parameters})
        assert answer["status"] == "error", answer
        assert answer["code"] != "internal", answer
        assert [word for word in words if word not in answer["message"]] == [], answer
    assert [dataset.id for dataset in waiting.store.datasets.page().items] == [three]
    assert not (tmp_path / "out").exists()


def test_changes_go_before_the_file_whatever_names_both_use(waiting: Services, datasets: dict[str, str]) -> None:
    document = {"method": "sft", "dataset": "some-sft", "hyperparameters": {"num_epochs": 9, "lora": {"rank": 4}}}
    started = start_config(waiting, document, {"epochs": 1, "lora_alpha": 8})
    spec = spec_of(waiting, started)
    assert (spec.config.epochs, spec.config.lora) == (1, LoraConfig(rank=4, alpha=8))


def test_a_recipe_names_what_it_measures_and_takes_texts_and_samples(
    waiting: Services, datasets: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "notes" / name).write_text(f"Text {name}.", encoding="utf-8")
    document = {
        "name": "clerk",
        "stages": [
            {"method": "evaluate", "environment": ENVIRONMENT, "label": "before"},
            {"method": "pretrain", "text": "notes/*.txt"},
            {"method": "sft", "dataset": "some-sft", "max_samples": 5},
            {"method": "evaluate", "environment": ENVIRONMENT, "n_tasks": 7, "repeats": 2},
            {"method": "dpo", "dataset": "some-dpo", "hyperparameters": {"max_steps": 3}},
            {
                "method": "grpo",
                "environment": ENVIRONMENT,
                "hyperparameters": {"rollouts": 4, "updates_per_rollout": 2},
            },
            {"method": "dpo", "label": "act", "environment": ENVIRONMENT, "hyperparameters": {"rollouts": 5}},
        ],
    }
    started = start_config(waiting, document, folder=tmp_path)
    spec = spec_of(waiting, started)
    texts, sft, dpo, grpo, act = (stage for stage in spec.stages if isinstance(stage, TrainStage))
    made = waiting.store.datasets.get(texts.dataset_id)
    assert (made.kind, made.rows, texts.rows) == ("text", 2, 2)
    assert [stage.agent for stage in (texts, sft, dpo, grpo, act)] == [None, "clerk-sft", None, None, None]
    assert (sft.dataset_id, dpo.dataset_id) == (datasets["sft"], datasets["dpo"]), "5 is more than there are: all"
    # one batch for each of 3 epochs, but for dpo no more than 1 x 3; online 4 x 2 and 5 x 1; evaluations 100 x 1 and 7 x 2
    assert [stage.planned_steps for stage in spec.stages] == [100, 3, 3, 14, 3, 8, 5]
    assert isinstance(spec.stages[3], EvaluateStage)
    again = start_config(waiting, document, folder=tmp_path)
    assert (again.job_id, again.deduplicated) == (started.job_id, True), "the same texts are the same dataset"


def test_every_shipped_recipe_is_accepted(waiting: Services, datasets: dict[str, str]) -> None:
    shipped = sorted(Path(__file__).parents[2].glob("examples/recipes/*.yaml"))
    assert len(shipped) >= 5
    for path in shipped:
        document = parse_yaml(path.read_text(encoding="utf-8"))
        for stage in document["stages"]:
            if "dataset" in stage:
                stage["dataset"] = f"some-{stage['method']}"
        stages = spec_of(waiting, start_config(waiting, document)).stages
        assert [stage.label for stage in stages if stage.kind == "train"], path


def test_every_method_has_a_guide_that_names_its_data_and_all_of_its_settings() -> None:
    for method in METHODS:
        about = describe_method(method)
        page = method_page(about)
        assert f"`{DATASET_KINDS.get(method) or 'environment'}`" in page
        assert [name for name in about["hyperparameters"] if f"- `{name}` (" not in page] == []


INVENTORY = "quintain/inventory"


def start(services: Services, **settings: Any) -> JobStarted:
    return start_training(services, "evolve", "starter", environment=INVENTORY, hyperparameters=settings)


WRONG_SETTINGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"iteration": 3}, ["hyperparameters.iteration", "did you mean 'iterations'"]),
    ({"iterations": 0}, ["iterations", "greater than or equal to 1"]),
    ({"ratio": 1.5}, ["ratio", "less than or equal to 1"]),
    ({"select": "best"}, ["select", "expected one of top_k, threshold, rejection"]),
    ({"training": {"gamma": 1}}, ["in `training`", "hyperparameters.gamma", "fields of sft"]),
    ({"train": "dpo", "training": {"rollouts": 3}}, ["no rollouts, got 3", "set tasks_per_iteration"]),
    ({"train": "grpo", "training": {"rollouts": 9}}, ["no rollouts, got 9", "set tasks_per_iteration"]),
    ({"train": "dpo", "training": {"pairs": "all_pairs"}}, ["pairs would have no effect"]),
    ({"training": {"replay": {}}}, ["replay", "accumulate"]),
    ({"train": "dpo", "attempts": 1}, ["train 'dpo'", "raise attempts"]),
    ({"temperature": 0}, ["makes all attempts equal"]),
    ({"temperature": [1.0, 0.5]}, ["1..0.5", "swap them"]),
    ({"temperature": [0.5, 1.0], "attempts": 1}, ["attempts 1, got a pair"]),
    ({"select": "rejection", "ratio": 0.5}, ["no ratio", "got 0.5", "select 'rejection'", "omit it"]),
    ({"select": "threshold", "threshold": None}, ["a threshold", "got null"]),
    ({"train": "grpo", "threshold": 0.7}, ["no threshold", "got 0.7", "train 'grpo'"]),
    ({"train": "grpo", "select": "rejection"}, ["got 'rejection'", "omit it"]),
    ({"train": "grpo", "reflect": 1}, ["reflect 0", "got 1", "log-probs"]),
    ({"train": "ppo", "ratio": 0.5}, ["no ratio", "train 'ppo'", "good and bad runs"]),
    ({"train": "ppo", "temperature": [0.5, 1.0]}, ["one temperature above 0 with train 'ppo'", "0.5..1"]),
    ({"train": "ppo", "accumulate": True}, ["no accumulate with train 'ppo'"]),
    ({"train": "ppo", "training": {"rollouts": 3}}, ["in `training`", "no rollouts, got 3", "set tasks_per_iteration"]),
    ({"train": "ppo", "training": {"self_play": {}}}, ["no self_play", "train once by ppo"]),
    (
        {"train": "ppo", "tasks_per_iteration": 128, "training": {"critic_warmup_steps": 8}},
        ["in `training`", "critic_warmup_steps is 8 and all optimizer steps are 8", "lower critic_warmup_steps"],
    ),
    ({"trajectories_per_iter": 500, "tasks_per_iteration": 9}, ["hyperparameters.trajectories_per_iter"]),
    ({"curriculum": []}, ["curriculum.levels"]),
    ({"curriculum": {"stages": []}}, ["curriculum.levels is required", "fields of curriculum: levels, advance_at, "]),
    ({"curriculum": ["?difficulty=easy", "?difficulty=moon"]}, ["curriculum.levels[1]", "'moon'"]),
]


def test_settings_that_are_wrong_or_without_effect_are_told_what_would_do(waiting: Services) -> None:
    for given, words in WRONG_SETTINGS:
        message = error_of(start, waiting, **given).message
        assert [word for word in words if word not in message] == [], message
    assert waiting.store.jobs.page().items == ()


def test_an_evolution_tells_which_settings_of_its_trainings_have_no_effect(waiting: Services) -> None:
    for given, words in (
        (
            {"train": "grpo", "training": {"top_p": 0.9}},
            "top_p has no effect on a dataset; leave it out: the evolution",
        ),
        ({"training": {"early_stopping_patience": 2}}, "early_stopping_patience has no effect; leave it out"),
        ({"train": "ppo", "training": {"epochs": 2}}, "epochs has no effect in an environment; leave it out"),
    ):
        warnings = start(waiting, **given).warnings
        assert [one for one in warnings if words in one], warnings


def test_an_evolution_needs_an_environment_and_takes_no_dataset(waiting: Services) -> None:
    with pytest.raises(InvalidInput, match="needs `environment`"):
        start_training(waiting, "evolve", "starter")
    with pytest.raises(InvalidInput, match=r"dataset 'runs' cannot be taken"):
        start_training(waiting, "evolve", "starter", dataset_id="runs", environment=INVENTORY)
    with pytest.raises(InvalidInput, match=r"dataset 'runs' cannot be taken"):
        start_config(waiting, {"method": "evolve", "environment": INVENTORY, "dataset": "runs"})


def test_a_spec_holds_checked_settings_by_any_name_and_whole_levels(waiting: Services) -> None:
    started = start(
        waiting,
        num_iterations=3,
        selection_ratio=0.2,
        selection_method="top_k",
        reward_threshold=0.7,
        samples_per_task=5,
        curriculum=["?difficulty=easy", INVENTORY],
        training={"lr": 1e-3},
    )
    spec = spec_of(waiting, started)
    config = spec.config
    assert (config.iterations, config.ratio, config.select) == (3, 0.2, "top_k")
    assert (config.threshold, config.attempts) == (0.7, 5)
    assert config.curriculum.levels == (f"{INVENTORY}?difficulty=easy", INVENTORY)
    assert (spec.training.learning_rate, config.training) == (1e-3, {})
    assert (spec.name, spec.datasets_dir) == ("starter-evolve", str(waiting.settings.datasets_dir))
    assert EvolveSpec.model_validate_json(spec.model_dump_json()) == spec


def test_the_rollouts_of_ppo_are_the_episodes_of_a_round(waiting: Services) -> None:
    """250 tasks in rollouts of 100: three, the last of which repeats tasks. Of their 12 steps 3 train the value head alone."""
    training = {"tasks_per_step": 100, "kl_coef": 0.02}
    spec = spec_of(waiting, start(waiting, train="ppo", attempts=2, temperature=0.9, max_turns=4, training=training))
    found = spec.training
    assert (found.rollouts, found.tasks_per_step, found.group_size) == (3, 100, 2)
    assert (found.temperature, found.max_turns, found.kl_coefficient) == (0.9, 4, 0.02)
    assert found.critic_only_steps == 3
    few = spec_of(waiting, start(waiting, train="ppo", tasks_per_iteration=20, training={"critic_warmup_steps": 2}))
    assert (few.training.rollouts, few.training.tasks_per_step, few.training.critic_only_steps) == (1, 20, 2)


def test_earlier_selections_come_back_by_themselves_where_every_round_starts_from_the_base() -> None:
    assert [EvolveConfig(start_from=start).accumulates for start in ("best", "last", "base")] == [False, False, True]
    assert not EvolveConfig(start_from="base", accumulate=False).accumulates


def test_tool_dict_call_file_and_command_start_the_same_job(waiting: Services, tool: Caller, tmp_path: Path) -> None:
    settings = {"iterations": 2, "attempts": 3, "training": {"epochs": 1}}
    first = start_training(waiting, "evolve", "starter", environment=INVENTORY, hyperparameters=settings)
    named_otherwise = {"rounds": 2, "attempts": 3, "training": {"num_epochs": 1}}
    common = {"environment": INVENTORY, "hyperparameters": named_otherwise, "wait": False}
    answers = [
        tool(action="evolve", **common),
        tool(action="train", algorithm="evolve", model_name="starter", **common),
    ]
    assert [(answer["job_id"], answer["deduplicated"]) for answer in answers] == [(first.job_id, True)] * 2
    document = {"method": "evolve", "base_model": "org/7b", "environment": INVENTORY, **settings, "iterations": 7}
    file = tmp_path / "evolve.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    asked = f"evolve starter --config {file} --iterations 2 --detach --home {waiting.settings.home}"
    ran = CliRunner().invoke(app, asked.split())
    assert (ran.exit_code, ran.stdout.strip()) == (0, first.job_id)
    refused = tool(algorithm="evolve", environment=INVENTORY, num_epochs=3)  # a setting of single trainings
    assert (refused["code"], "num_epochs" in refused["message"]) == ("unknown_argument", True)


def test_the_command_refuses_two_words_for_one_setting_and_files_of_other_methods(
    settings: Settings, tmp_path: Path
) -> None:
    home = ["--environment", INVENTORY, "--home", str(settings.home)]
    twice = CliRunner().invoke(app, ["evolve", "--iterations", "2", "--set", "iterations=3", *home])
    assert (twice.exit_code, "give the same setting" in twice.stderr) == (2, True)
    file = tmp_path / "sft.yaml"
    file.write_text("method: sft\ndataset: runs\n", encoding="utf-8")
    other = CliRunner().invoke(app, ["evolve", "--config", str(file), *home])
    assert (other.exit_code, "quintain train --config" in other.stderr) == (2, True)


REPORT: dict[str, Any] = {
    "rounds": [
        {"round": 1, "environment": INVENTORY, "explored": 240, "explored_success": 0.4583, "selected": 31}
        | {"success": 0.95, "gain": 0.61, "ci_low": 0.503, "ci_high": 0.698, "decision": "better"},
        {"round": 2, "environment": INVENTORY, "explored": 240, "explored_success": None, "selected": 0}
        | {"decision": "nothing_selected"},
    ],
    "stopped": "patience: 1 round in a row without a significant gain",
    "result_round": 1,
    "final": {"before": 0.34, "after": 0.96, "gain": 0.62, "ci_low": 0.547, "ci_high": 0.683, "p": 9.4e-38}
    | {"evaluations": ["eval-1-final-start", "eval-1-final-result"]},
}


def test_the_command_shows_each_round_and_the_last_comparison(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    _show(Console(width=120, soft_wrap=True), JobResult(agent="agent:keeper@1", report=REPORT))
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 240 45.8% 31 95.0% +61.0% [+50.3%, +69.8%] better" in shown
    assert "2 240 unknown 0 unknown nothing selected" in shown
    assert "34.0% before, 96.0% after (+62.0% [+54.7%, +68.3%], p = 9.4e-38)" in shown


def test_the_next_step_after_an_evolution_is_its_proof_or_what_to_try(waiting: Services) -> None:
    started = start_training(waiting, "evolve", "starter", environment=INVENTORY)
    job = waiting.store.jobs.get(started.job_id).model_copy(update={"status": "succeeded"})
    done = JobResult(agent="agent:keeper@1", evaluation_id="eval-1-final-result", report=REPORT)
    result = view_of(waiting, job.model_copy(update={"result": done})).next_step
    assert "compare_agents(agents=['eval-1-final-start', 'eval-1-final-result'], show=True)" in result
    unmoved = done.model_copy(update={"report": {**REPORT, "result_round": 0}})
    result = view_of(waiting, job.model_copy(update={"result": unmoved})).next_step
    assert "No round was better" in result


def test_an_evolution_that_selected_a_run_that_was_forgotten_does_not_go_on(waiting: Services) -> None:
    job_id = start_training(waiting, "evolve", "starter", environment=INVENTORY).job_id
    cancel_job(waiting, job_id)
    forgotten = run("t1").identified()
    add_runs(waiting, forgotten)
    name = round_dataset_id(job_id, 2)
    made = Dataset(id=name, name="round", kind="sft", path="/d", rows=1, splits={"train": 1})
    waiting.store.datasets.add_from_job(made, [forgotten.id or ""], waiting.clock())
    resumed = resume_job(waiting, job_id).job_id
    cancel_job(waiting, resumed)
    waiting.store.lineage.forget([forgotten.id or ""], waiting.clock())
    for each in (job_id, resumed):
        with pytest.raises(Conflict, match="forgotten since"):
            resume_job(waiting, each)


def test_an_evolution_under_way_is_asked_to_stop_when_a_run_that_it_learns_from_is_forgotten(waiting: Services) -> None:
    """It holds the run in a dataset of a round; another one goes on for it; a third played the run; a fourth has nothing of it."""
    job_id = start_training(waiting, "evolve", "starter", environment=INVENTORY).job_id
    cancel_job(waiting, job_id)
    going_on = resume_job(waiting, job_id).job_id
    player = start_training(waiting, "evolve", "starter", environment=INVENTORY, seed=1).job_id
    other = start_training(waiting, "evolve", "starter", environment=INVENTORY, seed=2).job_id
    for each in (going_on, player, other):
        waiting.store.jobs.begin_attempt(each, 0, 1, waiting.clock())
    forgotten = run("t1", job_id=player).identified()
    add_runs(waiting, forgotten)
    made = Dataset(id=round_dataset_id(job_id, 1), name="round", kind="sft", path="/d", rows=1, splits={"train": 1})
    waiting.store.datasets.add_from_job(made, [forgotten.id or ""], waiting.clock())
    report = forget(waiting, forgotten.id or "", dry_run=False)
    stopping = [thing for thing in report.touched if thing.state == "stopping"]
    assert [(thing.kind, thing.id) for thing in stopping] == [("job", going_on), ("job", player)]
    assert f"get_job(job_id={player!r}" in stopping[1].remedy
    asked = [waiting.store.jobs.get(each).cancel_requested for each in (going_on, player, other)]
    assert asked == [True, True, False]
