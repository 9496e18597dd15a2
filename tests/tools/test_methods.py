"""Starting training: by method, from a config file, as a recipe. What is wrong is told before anything is made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from quintain.records.dataset import DatasetRow, PairRow, TextRow
from quintain.records.documents import parse_yaml, read_document
from quintain.records.hyperparameters.methods import CONFIGS, DATASET_KINDS, LoraConfig
from quintain.records.jobs.evolve import EvolveConfig
from quintain.records.jobs.recipe import EvaluateStage, TrainStage
from quintain.server.guide import method_page
from quintain.settings import Settings
from quintain.tools.services import Services
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
    ("grpo", {"environment": "moon"}, "environment_not_found", ["moon", ENVIRONMENT]),
    ("sft", {"dataset_id": "none"}, "not_found", ["none"]),
    (
        "dpo",
        {"environment": ENVIRONMENT, "hyperparameters": {"max_pairs_per_task": 4}},
        "invalid_input",
        ["max_pairs_per_task is 4", "'best_worst'", "all_pairs"],
    ),
]
"""Method, further arguments, the code of the error, and words of its message."""
UNFIT_SETTINGS: list[tuple[str, dict[str, Any], str, list[str]]] = [
    ("ppo", {"advantage": "rloo"}, "invalid_input", ["group_size is 1", "set group_size to 2 or more"]),
    ("ppo", {"advantage": "reinforce_pp", "vf_coef": 0.5}, "invalid_input", ["value_weight is set", "no value head"]),
    ("ppo", {"kl_target": 0.1, "kl_coef": 0}, "invalid_input", ["kl_target is 0.1", "kl_coefficient above 0"]),
    ("ppo", {"minibatches": 3}, "invalid_input", ["updates_per_rollout is 4", "minibatches 3"]),
    (
        "evolve",
        {"train": "grpo", "training": {"constraint": {"limit": 0.1}}},
        "not_online",
        ["constraint would have no effect", "`environment`"],
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
