"""Trainers of other libraries over the dict calls of `RLTrainingTool`: what they share, and HelloAgents' trainers and rewards.

from quintain.tools import SFTTrainerWrapper, create_sft_dataset
SFTTrainerWrapper(model_name="starter", dataset=create_sft_dataset(max_samples=100), output_dir="out").train()
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from quintain.datasets.row_files import rows_of
from quintain.errors import InvalidInput, NotFound, TrainingFailed
from quintain.importers.protocol import Report
from quintain.records.filters import TrajectoryFilter
from quintain.records.hyperparameters.setting_groups import LoraConfig
from quintain.records.trajectory import Trajectory
from quintain.settings import read_settings
from quintain.tools.dict_calls.actions import DEFAULT_ROWS
from quintain.tools.dict_calls.facade import RLTrainingTool
from quintain.tools.services import Services, open_services


class NamedSettings:
    """A description of a training whose `settings` are attributes too."""

    settings: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("settings", {})
        if name not in settings:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return settings[name]


@contextmanager
def opened(home: str | Path | None = None) -> Iterator[Services]:
    """Open a home folder, as of `call`, to read what a call has stored."""
    services = open_services(read_settings(None if home is None else Path(home)), trusted=True)
    try:
        yield services
    finally:
        services.close()


def call(parameters: Mapping[str, Any], home: str | Path | None = None) -> dict[str, Any]:
    """Make one dict call in a home folder and return its answer.

    Raises:
        TrainingFailed: the call was refused or its job failed; message and code are those of the answer.
    """
    tool = RLTrainingTool(home)
    try:
        answer: dict[str, Any] = json.loads(tool.run(parameters))
    finally:
        tool.close()
    if answer["status"] == "error":
        raise TrainingFailed(str(answer.get("message")), code=str(answer.get("code", "failed")))
    return answer


def collected(parameters: Mapping[str, Any], home: str | Path | None = None) -> list[Trajectory]:
    """Let an agent act, as the action `collect` does, and return its runs; errors as of `call`."""
    played = call({"action": "collect", **parameters, "wait": True}, home)
    chosen = TrajectoryFilter.model_validate(played["result"]["trajectories"]["filter"])
    with opened(home) as services:
        return list(services.store.trajectories.iterate(chosen))


def train(
    algorithm: str,
    model: str,
    dataset: Any,
    settings: Mapping[str, Any],
    *,
    use_lora: bool,
    home: str | Path | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Train by a dict call and return its answer: `output_dir`, `agent`, `final_loss` and more.

    `settings` are hyperparameters under anybody's names, and `seed`; `more` are further parameters of the dict call.
    """
    hyperparameters = dict(settings)
    seed = {"seed": hyperparameters.pop("seed")} if "seed" in hyperparameters else {}
    request = {"action": "train", "algorithm": algorithm, "model_name": model, "dataset": dataset, "use_lora": use_lora}
    return call({**request, "hyperparameters": hyperparameters, **seed, **more}, home)


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, which are all objects."""
    if not path.is_file():
        raise NotFound(f"expected a file of rows at {str(path)!r}, got none; name one that exists")
    report = Report()
    rows = [row.value for row in rows_of(path, report)]
    faults = [*(why for _, why in report.rejected), *(type(row).__name__ for row in rows if not isinstance(row, dict))]
    if faults:
        raise InvalidInput(f"{path}: expected rows that are objects, got {faults[0]}; write one object a line")
    return rows


@dataclass(frozen=True)
class Rows:
    """Rows by name: a dataset, a path, or a file in the inbox."""

    name: str = DEFAULT_ROWS
    max_samples: int | None = None


def create_sft_dataset(split: str = "train", max_samples: int | None = None, dataset: str = DEFAULT_ROWS) -> Rows:
    """Return the rows to imitate; `train` is the only split that trains."""
    if split != "train":
        raise InvalidInput(f"split: expected 'train', got {split!r}; evaluate on other splits with action evaluate")
    return Rows(dataset, max_samples)


def create_rl_dataset(
    split: str = "train", max_samples: int | None = None, model_name: str | None = None, dataset: str = DEFAULT_ROWS
) -> Rows:
    """Return the questions to act on; `model_name` has no effect, because training applies the template."""
    return create_sft_dataset(split, max_samples, dataset)


def create_accuracy_reward() -> str:
    """Return the name of the reward that compares the stated answer with the expected one."""
    return "answer"


def create_lora_config(
    r: int = 16,
    lora_alpha: float = 32,
    lora_dropout: float = 0.05,
    target_modules: Iterable[str] = ("q_proj", "v_proj"),
) -> dict[str, Any]:
    """Return settings of adapters as `hyperparameters={"lora": ...}` takes them."""
    return {"rank": r, "alpha": float(lora_alpha), "dropout": lora_dropout, "targets": list(target_modules)}


def _adapters(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of adapters; those with the names of `create_lora_config` are translated."""
    return dict(config) if config.keys() & LoraConfig.model_fields.keys() else create_lora_config(**config)


class SFTTrainerWrapper:
    """Trains a model on rows and leaves it in a folder."""

    algorithm: ClassVar[str] = "sft"
    batch_size: ClassVar[int] = 4
    learning_rate: ClassVar[float] = 2e-5

    def __init__(
        self,
        model_name: str,
        dataset: Rows | str | Iterable[Mapping[str, Any]],
        output_dir: str = "./output",
        num_epochs: float = 3,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        *,
        use_lora: bool = False,
        lora_config: Mapping[str, Any] | None = None,
        home: str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Describe a training; nothing starts.

        Args:
            model_name: Agent, model folder, or name in the inbox.
            dataset: Rows by name, or the rows themselves, such as a Dataset of the `datasets` library.
            output_dir: Folder for the trained model.
            num_epochs: Passes over the rows.
            batch_size: Examples of an optimizer step; None: 4, of GRPO 2.
            learning_rate: Peak rate; None: 2e-5, of GRPO 1e-5.
            use_lora: Train adapters.
            lora_config: As of `create_lora_config`.
            home: Home folder; None: that of the environment.
            **settings: Further hyperparameters, also under TRL's names.
        """
        rows = dataset if isinstance(dataset, Rows | str) else [dict(row) for row in dataset]
        self.output_dir = str(output_dir)
        self._call: dict[str, Any] = {
            "model": model_name,
            "dataset": rows.name if isinstance(rows, Rows) else rows,
            "settings": {
                "batch_size": batch_size
                or self.batch_size,  # beside `gradient_accumulation_steps`, which multiplies it
                **({"lora": _adapters(lora_config)} if use_lora and lora_config else {}),
                **settings,
            },
            "use_lora": use_lora,
            "home": home,
            "num_epochs": num_epochs,
            "learning_rate": self.learning_rate if learning_rate is None else learning_rate,
            "output_dir": self.output_dir,
        }
        if isinstance(rows, Rows) and rows.max_samples is not None:
            self._call["max_samples"] = rows.max_samples

    def train(self) -> dict[str, Any]:
        """Train, and return the answer of the dict call: `output_dir`, `agent`, `final_loss` and more; errors as of `call`."""
        return train(self.algorithm, **self._call)

    def save_model(self, path: str) -> None:
        """Copy the trained model, which `train` must have left, to a folder."""
        if not any(Path(self.output_dir, name).is_file() for name in ("config.json", "adapter_config.json")):
            raise InvalidInput(f"expected a trained model in {self.output_dir!r}, got none; call train() first")
        shutil.copytree(self.output_dir, path, dirs_exist_ok=True)


class GRPOTrainerWrapper(SFTTrainerWrapper):
    """Lets a model answer questions and reinforces the better answers, or learns from groups of runs."""

    algorithm: ClassVar[str] = "grpo"
    batch_size: ClassVar[int] = 2
    learning_rate: ClassVar[float] = 1e-5

    def __init__(
        self,
        model_name: str,
        dataset: Rows | str | Iterable[Mapping[str, Any]],
        reward_fn: str | Mapping[str, Any] | Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        """Describe a training; as `SFTTrainerWrapper`.

        Args:
            model_name: As there.
            dataset: Questions with answers, or groups of runs.
            reward_fn: Name of a reward or weights of several; None: the answer of the task. A function as of
                `RLTrainingTool.register_reward_function`, or of TRL, at the top level of a module.
            **options: As there.
        """
        super().__init__(model_name, dataset, **options)
        if reward_fn is not None:
            self._call["reward"] = reward_fn
