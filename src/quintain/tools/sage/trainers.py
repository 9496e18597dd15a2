"""SAGE's trainers and their settings, its files of dialogs and pairs, and its text of a dialog."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from quintain.datasets.sampling import task_class
from quintain.errors import InvalidInput, NotFound
from quintain.importers.harnesses.sage import read_dialog
from quintain.records.trajectory import Step, text_of
from quintain.scoring.outcomes.final_message import final_messages
from quintain.settings import read_settings
from quintain.tools.data.row_references import ROW_SUFFIXES
from quintain.tools.dict_calls.actions import file_of_rows
from quintain.tools.dict_calls.trainers import NamedSettings, call, collected, opened, read_objects, train
from quintain.tools.sage.rewards import AgentRewardConfig, AgentRewardModel


class AgentSFTFormatter:
    """Writes dialogs as text with SAGE's marks, for programs that read it; a training renders the model's own template."""

    def format_dialog(self, dialog: Mapping[str, Any]) -> dict[str, Any]:
        """Return `input`, `output`, `task_type` and `metadata` of a row of dialogs in which somebody acts."""
        run = read_dialog(dict(dialog))
        tools = ", ".join(run.task.metadata.get("target_tools", ()))
        return {
            "input": f"<|system|>\nTools: {tools}\n<|user|>\n{run.first_user_text}\n<|assistant|>\n",
            "output": "\n".join(part for step in run.agent_steps for part in _marked(step)),
            "task_type": task_class(run),
            "metadata": dict(dialog.get("metadata") or {}),
        }


def _marked(step: Step) -> Iterator[str]:
    """Yield the parts of a turn: what the agent wrote, and each tool with its result."""
    if text := text_of(step.message):
        yield f"<think>{text}</think>"
    for tool, seen in zip(step.extra.get("tools_used", ()), step.observations, strict=False):
        yield f"<tool_call>{tool}</tool_call>\n<tool_result>{text_of(seen.content)}</tool_result>"


class AgentTrainingUsage:
    """The rows of SAGE's files in the inbox by their use."""

    def __init__(self, home: str | Path | None = None) -> None:
        """Name the home folder; None: that of the environment."""
        self._home = None if home is None else Path(home)

    def get_sft_data(self, split: str = "train") -> Iterator[dict[str, Any]]:
        """Yield the dialogs of a split of `agent_sft` as text."""
        return map(AgentSFTFormatter().format_dialog, rows_of(f"agent_sft:{split}", split, self._home))

    def get_preference_data(self) -> Iterator[dict[str, Any]]:
        """Yield the pairs of `agent_benchmark` for training."""
        return iter(rows_of("agent_benchmark:train", "train", self._home))

    def get_evaluation_data(self, split: str = "test") -> Iterator[dict[str, Any]]:
        """Yield the rows of a split of `agent_benchmark`."""
        return iter(rows_of(f"agent_benchmark:{split}", split, self._home))


def rows_of(data: str, side: str, home: Path | None) -> list[dict[str, Any]]:
    """Return the rows of a split; rows without one are for training."""
    name, _, split = data.partition(":")
    rows, without = read_objects(_file_of(name, home)), split if side == "train" else None
    return [row for row in rows if not split or row.get("split", without) == split]


def frozen(
    kind: str, name: str, rows: Sequence[Mapping[str, Any]], more: Mapping[str, Any], home: Path | None
) -> dict[str, Any]:
    """Freeze rows as a dataset; see `export_dataset`."""
    with TemporaryDirectory(prefix="rows-") as aside:
        path = Path(aside, f"{name}.jsonl")
        path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
        asked = {"action": "export", "kind": kind, "name": name, "path": str(path), "validation_share": 0}
        return call({**asked, **more}, home)


def _file_of(name: str, home: Path | None) -> Path:
    """Return a file of dialogs: a path, or one in the inbox, where the ending may be left out."""
    inbox = read_settings(home).inbox_dir
    for path in (Path(name), inbox / name, *(inbox / f"{name}{suffix}" for suffix in ROW_SUFFIXES[:2])):
        if path.is_file():
            return path
    raise NotFound(f"expected a file of dialogs, got {name!r}; put it into {str(inbox)!r} as {name}.jsonl")


_DEFAULTS: dict[str, Any] = {
    "max_length": 4096,
    "lora_r": 64,
    "lora_alpha": 128,
    "lora_dropout": 0.05,
    "lora_target_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "num_epochs": 3,
    "batch_size": 4,
    "gradient_accumulation": 8,
    "learning_rate": 2e-5,
    "warmup_ratio": 0.1,
    "lr_scheduler": "cosine",
}
"""As SAGE documents `AgentSFTConfig`."""
_RL_DEFAULTS: dict[str, dict[str, Any]] = {
    "dpo": {"beta": 0.1, "reference_free": False, "label_smoothing": 0.0, "loss_type": "sigmoid"},
    "ppo": {"kl_coef": 0.02, "clip_range": 0.2, "vf_coef": 0.5, "num_rollouts": 128, "chunk_size": 64},
    "grpo": {"group_size": 4, "beta": 0.1, "use_advantage": True},
}
_RL_NAMES = {
    ("ppo", "num_rollouts"): "tasks_per_step",
    ("ppo", "chunk_size"): "episodes_at_once",
    ("grpo", "beta"): "kl_coefficient",
}
"""(method, SAGE's name) -> setting, where other trainers mean something else by the name."""
_PROMPTS = "quintain/tasks?open=true&plain=true"
"""Where prompts without an answer are answered."""


class AgentSFTConfig(NamedSettings):
    """Settings of a training under SAGE's names."""

    def __init__(
        self,
        base_model: str = "Qwen/Qwen2.5-7B-Instruct",
        train_data: str = "agent_sft:train",
        task_weights: Mapping[str, float] | None = None,
        *,
        dev_data: str | None = None,
        home: str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Describe a training.

        Args:
            base_model: Agent, model folder, or name in the inbox.
            train_data: File of dialogs, or its name in the inbox, and after a colon the split: dialogs of other splits are left out.
            dev_data: Dialogs that validate, in the same form; None: those of the split `dev` in the file of `train_data`.
            task_weights: Class of tasks -> share, by which dialogs are drawn; None: all dialogs, as SAGE takes them without a limit.
            home: Home folder; None: that of the environment.
            **settings: Hyperparameters under SAGE's or our names, and `seed`.
        """
        self.base_model, self.train_data, self.task_weights = base_model, train_data, task_weights
        self.dev_data = dev_data if dev_data is not None else f"{train_data.partition(':')[0]}:dev"
        self.home = Path(home) if home is not None else None
        self.settings = {**_DEFAULTS, **settings}


class AgentSFTTrainer:
    """Trains adapters of an agent on dialogs with tools; `use_lora=False` in the config trains all weights."""

    def __init__(self, config: AgentSFTConfig) -> None:
        """Take the settings; nothing starts."""
        self.config = config
        self._dataset: str | None = None
        self._model: str | None = None

    def prepare_datasets(self) -> dict[str, Any]:
        """Freeze the dialogs as a dataset and return what was kept and left out; errors as of `call`.

        Coreset and replay are applied in training.
        """
        config, name = self.config, self.config.train_data.partition(":")[0]
        chosen = {"train": config.train_data, "validation": config.dev_data}
        rows = [{**row, "split": side} for side, data in chosen.items() for row in rows_of(data, side, config.home)]
        drawn = {} if config.task_weights is None else {"curation": {"task_weights": dict(config.task_weights)}}
        answer = frozen("sft", Path(name).stem, rows, drawn | {"columns": {"split": "split"}}, config.home)
        self._dataset = str(answer["dataset_id"])
        return answer

    def train(self) -> dict[str, Any]:
        """Train, and return the answer of the dict call; errors as of `call`."""
        if self._dataset is None:
            self.prepare_datasets()
        settings = dict(self.config.settings)
        if not (use_lora := settings.pop("use_lora", True)):
            settings = {name: value for name, value in settings.items() if not name.startswith("lora_")}
        model, home = self.config.base_model, self.config.home
        answer = train("sft", model, self._dataset, settings, use_lora=use_lora, home=home)
        self._model = str(answer["output_dir"])
        return answer

    @property
    def model(self) -> str:
        """The folder of the trained model, which `train` must have left."""
        if self._model is None:
            raise InvalidInput("expected a trained model, got none; call train() first")
        return self._model

    def save_model(self, path: str | Path) -> None:
        """Copy the trained model to a folder; errors as of `model`."""
        shutil.copytree(self.model, path, dirs_exist_ok=True)


class AgentLoRATrainer(AgentSFTTrainer):
    """`AgentSFTTrainer` with SAGE's other name of its preparation."""

    prepare_data = AgentSFTTrainer.prepare_datasets


class RLTrainingConfig:
    """Method of a reinforcement and its settings under SAGE's names, and those of the program's choice beside them."""

    def __init__(
        self,
        algorithm: str = "dpo",
        *,
        dpo_config: Mapping[str, Any] | None = None,
        ppo_config: Mapping[str, Any] | None = None,
        grpo_config: Mapping[str, Any] | None = None,
        train_data: str = "agent_benchmark:train",
        environment: str | None = None,
        home: str | Path | None = None,
        **settings: Any,
    ) -> None:
        """Describe a training.

        Args:
            algorithm: dpo, grpo or ppo.
            dpo_config: Settings of DPO beside SAGE's defaults.
            ppo_config: Settings of PPO beside SAGE's defaults.
            grpo_config: Settings of GRPO beside SAGE's defaults.
            train_data: File of pairs (dpo) or groups (grpo), or its name in the inbox, and after a colon the split.
            environment: Where the agent plays instead, rewarded by the scorer `sage`; ppo needs one.
            home: Home folder; None: that of the environment.
            **settings: Hyperparameters of any of them under anybody's names, and `seed`.
        """
        own = {"dpo": dpo_config, "ppo": ppo_config, "grpo": grpo_config}
        if algorithm not in own:
            raise InvalidInput(f"expected algorithm dpo, grpo or ppo, got {algorithm!r}")
        self.algorithm, self.train_data, self.environment = algorithm, train_data, environment
        self.home = Path(home) if home is not None else None
        named = {**_RL_DEFAULTS[algorithm], **(own[algorithm] or {})}
        self.settings = {_RL_NAMES.get((algorithm, name), name): value for name, value in named.items()} | settings


class AgentRLTrainer(AgentSFTTrainer):
    """Trains an agent on what is better: pairs, groups, or its own runs in an environment."""

    def __init__(
        self,
        config: RLTrainingConfig,
        base_model_path: str,
        sft_model_path: str | None = None,
        reward_model: AgentRewardModel | None = None,
        *,
        use_lora: bool = True,
    ) -> None:
        """Take the settings; nothing starts.

        Args:
            config: Method, settings and data.
            base_model_path: Agent or model folder; an adapter folder is loaded on its own base.
            sft_model_path: The trained model to go on with; None: the base.
            reward_model: The reward in an environment, with the published weights; pairs and groups have their order already.
            use_lora: Train adapters.
        """
        weights = vars(AgentRewardConfig())
        if config.environment is not None and reward_model is not None and vars(reward_model.config) != weights:
            raise InvalidInput(
                "expected the published weights for a training in an environment, got others; leave them out, or train with "
                "start_training and a `reward` of weighted scorers"
            )
        self.rl, self._lora, self.reward_model = config, use_lora, reward_model or AgentRewardModel()
        super().__init__(AgentSFTConfig(sft_model_path or base_model_path, home=config.home))

    def prepare_datasets(self) -> dict[str, Any]:
        """Freeze the pairs or groups as a dataset, which ppo lacks, and return what was kept and left out; errors as of `call`."""
        config = self.rl
        if config.algorithm == "ppo":
            raise InvalidInput(
                "expected an environment for ppo, which learns from what it plays, got none; give environment"
            )
        rows = rows_of(config.train_data, "train", config.home)
        answer = frozen(config.algorithm, Path(config.train_data.partition(":")[0]).stem, rows, {}, config.home)
        self._dataset = str(answer["dataset_id"])
        return answer

    def train(self) -> dict[str, Any]:
        """Train, and return the answer of the dict call; errors as of `call`."""
        config = self.rl
        acting = {} if config.environment is None else {"environment": config.environment, "reward": "sage"}
        if not acting and self._dataset is None:
            self.prepare_datasets()
        model, home = self.config.base_model, config.home
        dataset = None if acting else self._dataset
        answer = train(config.algorithm, model, dataset, config.settings, use_lora=self._lora, home=home, **acting)
        self._model = str(answer["output_dir"])
        return answer

    def generate_preference_pairs(self, prompts: Sequence[str], num_samples: int = 4) -> list[dict[str, Any]]:
        """Let the model answer each prompt several times, and pair its best with its worst answer by the reward model.

        Returns:
            `prompt, chosen, rejected, chosen_score, rejected_score` of each prompt whose answers differ in value.
        """
        valued: dict[str, list[tuple[float, str]]] = {prompt: [] for prompt in prompts}
        found: dict[str, Any] = {}
        with opened(self.config.home) as services:
            path = file_of_rows(services, [{"prompt": prompt, "split": "train"} for prompt in valued])
        acting = {"agent": self.config.base_model, "environment": f"{_PROMPTS}&file={path}"}
        for run in collected({**acting, "n_tasks": len(valued), "attempts": num_samples}, self.config.home):
            prompt, answer = run.task.prompt, next(final_messages(run), "")
            found = self.reward_model.compute_reward(query=prompt, response=answer, ground_truth={}, execution_trace=[])
            if found["total"] is not None:
                valued.setdefault(prompt, []).append((found["total"], answer))
        if not any(valued.values()):
            raise InvalidInput(
                f"expected a reward model that values answers without a ground truth and a trace, got no total "
                f"({found.get('feedback', 'no answers')}); give one with its own compute_reward, or train with "
                "RLTrainingConfig('dpo', environment=...), which pairs num_samples runs of each task by their outcome"
            )
        sides = {prompt: (max(answers), min(answers)) for prompt, answers in valued.items() if answers}
        return [
            {"prompt": prompt, "chosen": best, "rejected": worst, "chosen_score": high, "rejected_score": low}
            for prompt, ((high, best), (low, worst)) in sides.items()
            if high > low
        ]
