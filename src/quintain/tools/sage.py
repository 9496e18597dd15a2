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

from quintain.errors import InvalidInput, NotFound, TrainingFailed
from quintain.settings import read_settings
from quintain.tools.data.row_references import ROW_SUFFIXES
from quintain.tools.facade import RLTrainingTool

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
        dialogs = _dialogs(_file_of(name, self.config.home), split)
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
            answer = self._answered(asked | ({} if weights is None else {"curation": {"task_weights": dict(weights)}}))
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
        request = {"seed": settings.pop("seed")} if "seed" in settings else {}
        lora = settings.pop("use_lora", any(name.startswith("lora") for name in settings))
        answer = self._answered(
            {
                "action": "train",
                "algorithm": "sft",
                "model_name": self.config.base_model,
                "dataset": self._dataset,
                "use_lora": lora if self.use_lora is None else self.use_lora,
                "hyperparameters": settings,
                **request,
            }
        )
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

    def _answered(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        tool = RLTrainingTool(self.config.home)
        try:
            answer: dict[str, Any] = json.loads(tool.run(parameters))
        finally:
            tool.close()
        if answer["status"] != "success":
            raise TrainingFailed(str(answer.get("message")), code=str(answer.get("code", "failed")))
        return answer


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


def _dialogs(path: Path, split: str) -> list[dict[str, Any]]:
    """Read the dialogs of a JSON or JSONL file; those of another split are left out.

    Raises:
        InvalidInput: the file is neither.
    """
    text = path.read_text(encoding="utf-8")
    try:
        rows = (
            json.loads(text) if text.lstrip().startswith("[") else [json.loads(row) for row in text.splitlines() if row]
        )
    except ValueError as error:
        raise InvalidInput(f"{path} is not JSON or JSONL ({error}); write one dialog a line") from None
    return [row for row in rows if isinstance(row, dict) and (not split or row.get("split", split) == split)]
