"""SAGE's trainers of agents for Python programs, over the dict calls of `RLTrainingTool`.

from quintain.tools.sage import AgentSFTConfig, AgentSFTTrainer
AgentSFTTrainer(AgentSFTConfig(base_model="starter", train_data="agent_sft:train", num_epochs=3)).train()
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from quintain.errors import InvalidInput, NotFound
from quintain.settings import read_settings
from quintain.tools.data.row_references import ROW_SUFFIXES
from quintain.tools.dict_calls.trainers import call, read_objects, train

_DEFAULTS = {"num_epochs": 3, "batch_size": 4, "gradient_accumulation": 8}


class AgentSFTConfig:
    """Settings of a training under SAGE's names."""

    def __init__(
        self,
        base_model: str,
        train_data: str = "agent_sft:train",
        task_weights: Mapping[str, float] | None = None,
        *,
        home: str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Describe a training.

        Args:
            base_model: Agent, model folder, or name in the inbox.
            train_data: File of dialogs, or its name in the inbox, and after a colon the split: dialogs of other splits are left out.
            task_weights: Class of tasks -> share, by which dialogs are drawn; None: all dialogs.
            home: Home folder; None: that of the environment.
            **settings: Hyperparameters under SAGE's or our names, and `seed`.
        """
        self.base_model, self.train_data, self.task_weights = base_model, train_data, task_weights
        self.home = Path(home) if home is not None else None
        self.settings = {**_DEFAULTS, **settings}


class AgentSFTTrainer:
    """Trains an agent on dialogs with tools."""

    use_lora: ClassVar[bool | None] = None
    """Whether adapters are trained; None: as the settings ask."""

    def __init__(self, config: AgentSFTConfig) -> None:
        """Take the settings; nothing starts."""
        self.config = config
        self._dataset: str | None = None
        self._model: str | None = None

    def prepare_datasets(self) -> dict[str, Any]:
        """Freeze the dialogs as a dataset and return what was kept and left out; coreset and replay are applied in training.

        Raises:
            NotFound: there is no such file of dialogs.
            TrainingFailed: none of the dialogs can be used.
        """
        name, _, split = self.config.train_data.partition(":")
        rows = read_objects(_file_of(name, self.config.home))
        dialogs = [row for row in rows if not split or row.get("split", split) == split]
        weights = self.config.task_weights
        with TemporaryDirectory(prefix="dialogs-") as aside:
            path = Path(aside, f"{Path(name).stem}.jsonl")
            path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in dialogs), encoding="utf-8")
            asked = {
                "action": "export",
                "kind": "sft",
                "name": Path(name).stem,
                "path": str(path),
                "validation_share": 0,
            }
            drawn = {} if weights is None else {"curation": {"task_weights": dict(weights)}}
            answer = call(asked | drawn, self.config.home)
        self._dataset = str(answer["dataset_id"])
        return answer

    def train(self) -> dict[str, Any]:
        """Train, and return the answer of the dict call.

        Raises:
            NotFound: as `prepare_datasets`.
            TrainingFailed: the call was refused or the job failed.
        """
        if self._dataset is None:
            self.prepare_datasets()
        settings = dict(self.config.settings)
        lora = settings.pop("use_lora", any(name.startswith("lora") for name in settings))
        use_lora = lora if self.use_lora is None else self.use_lora
        model, home = self.config.base_model, self.config.home
        answer = train("sft", model, self._dataset, settings, use_lora=use_lora, home=home)
        self._model = str(answer["output_dir"])
        return answer

    def save_model(self, path: str | Path) -> None:
        """Copy the trained model to a folder.

        Raises:
            InvalidInput: `train` has not left a model yet.
        """
        if self._model is None:
            raise InvalidInput("expected a trained model, got none; call train() first")
        shutil.copytree(self._model, path, dirs_exist_ok=True)


class AgentLoRATrainer(AgentSFTTrainer):
    """Trains adapters on dialogs with tools."""

    use_lora: ClassVar[bool | None] = True


def _file_of(name: str, home: Path | None) -> Path:
    """Return a file of dialogs: a path, or one in the inbox, where the ending may be left out."""
    inbox = read_settings(home).inbox_dir
    for path in (Path(name), inbox / name, *(inbox / f"{name}{suffix}" for suffix in ROW_SUFFIXES[:2])):
        if path.is_file():
            return path
    raise NotFound(f"expected a file of dialogs, got {name!r}; put it into {str(inbox)!r} as {name}.jsonl")
