"""knowlyr's Python API: environments, collection, exports and trainers, over the dict calls of `RLTrainingTool`.

    from quintain.tools.knowlyr import DatasetExporter, SFTConfig, SFTTrainer, collect
    trajectories = collect("knowlyr/conversation", agent=my_agent, n_episodes=20)

An agent is a function from the text of an observation to `{"tool": NAME, "params": {...}}`, or a model of `AgentInference`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

from quintain.errors import InvalidInput, NotFound
from quintain.records.documents import read_document
from quintain.records.trajectory import Action, Actor, Observation, Step, Trajectory
from quintain.scoring.profiles import profile as find_profile
from quintain.scoring.rules.scorer import RulesScorer
from quintain.tools.dict_calls.trainers import NamedSettings, call, collected, read_objects, train
from quintain.tools.knowlyr_environments import (
    AgentEnv,
    EnvWrapper,
    EpisodeStatisticsWrapper,
    MaxStepsWrapper,
    ObservationTruncateWrapper,
    RecorderWrapper,
    RewardFunction,
    RewardWrapper,
    TimeoutWrapper,
    TimeStep,
    environment_name,
    list_envs,
    make,
    recorded_row,
    register,
)

__all__ = [
    "AgentEnv",
    "AgentInference",
    "DPOConfig",
    "DPOTrainer",
    "DatasetExporter",
    "EnvWrapper",
    "EpisodeStatisticsWrapper",
    "GRPOConfig",
    "GRPOTrainer",
    "MaxStepsWrapper",
    "ObservationTruncateWrapper",
    "RecorderWrapper",
    "RewardWrapper",
    "SFTConfig",
    "SFTTrainer",
    "TimeStep",
    "TimeoutWrapper",
    "collect",
    "list_envs",
    "make",
    "make_reward_fn",
    "register",
]

EXPORTED = {"sft": "train.jsonl", "dpo": "train.jsonl", "grpo": "train.jsonl", "benchmark": "benchmark.json"}
"""Kind of rows -> file of an export in knowlyr's format that has them."""


def make_reward_fn(domain: str = "coding") -> RewardFunction:
    """Return the reward of a step by rules, the first layer of knowlyr's process reward: the value of the last step so far."""
    scorer = RulesScorer(find_profile(domain))

    def reward(steps: Sequence[Mapping[str, Any]], action: Mapping[str, Any]) -> float:
        turns = [
            Step(
                actor=Actor.AGENT,
                actions=(Action(tool=step["tool"], args=dict(step["params"])),),
                observations=(Observation(content=str(step.get("output", ""))),),
            )
            for step in steps
        ]
        values = scorer.score(Trajectory(steps=tuple(turns)).identified()).steps
        return next((step.value for step in reversed(values) if step.value is not None), 0.0)

    return reward


@dataclass(frozen=True)
class ModelAgent:
    """A model that acts in `collect`, by a job."""

    model: str
    system_prompt: str | None = None
    temperature: float = 0.7
    max_new_tokens: int = 512


@dataclass(frozen=True)
class AgentInference:
    """A trained model, from which agents are made."""

    model_path: str
    temperature: float = 0.7
    max_new_tokens: int = 512

    @classmethod
    def from_pretrained(cls, model_path: str, **settings: Any) -> Self:
        """Name a model folder, an adapter folder, a checkpoint, or an agent."""
        return cls(str(model_path), **settings)

    def create_agent(self, system_prompt: str | None = None) -> ModelAgent:
        """Return an agent for `collect`."""
        return ModelAgent(self.model_path, system_prompt, self.temperature, self.max_new_tokens)


def collect(
    env_id: str | AgentEnv,
    agent: Callable[[str], Mapping[str, Any]] | ModelAgent,
    n_episodes: int = 1,
    max_steps: int = 30,
    agent_name: str = "agent",
    model_name: str = "",
    task: Any = None,
    reward_fn: RewardFunction | None = None,
) -> list[dict[str, Any]]:
    """Play episodes and return them as rows of knowlyr's recorder; errors as of `call`.

    Args:
        env_id: Environment, or its id.
        agent: A function from the observation's text to an action, or a model of `AgentInference.create_agent`.
        n_episodes: Episodes.
        max_steps: Steps after which an episode is truncated.
        agent_name: Name in the rows.
        model_name: Model in the rows.
        task: Played in every episode; None: the next of the environment's training tasks. Functions alone.
        reward_fn: Replaces the rewards of steps; functions alone, as a model acts in a job.
    """
    if isinstance(agent, ModelAgent):
        if task is not None or reward_fn is not None:
            raise InvalidInput(
                "expected neither task nor reward_fn with a model, got one; use collect_rollouts, with `reward`"
            )
        return _collected_by_job(env_id, agent, n_episodes, max_steps)
    with make(env_id) if isinstance(env_id, str) else env_id as env:
        env = MaxStepsWrapper(env, max_steps=max_steps)
        env = env if reward_fn is None else RewardWrapper(env, reward_fn=reward_fn)
        recorder = RecorderWrapper(env, agent_name=agent_name, model_name=model_name)
        rows = []
        for _ in range(n_episodes):
            step = recorder.reset(task=task)
            while not step.done:
                step = recorder.step(dict(agent(step.observation)))
            rows.append(recorder.get_trajectory())
        return rows


def _collected_by_job(
    env_id: str | AgentEnv, agent: ModelAgent, n_episodes: int, max_steps: int
) -> list[dict[str, Any]]:
    """Let a model act as `collect_rollouts` does, and return its runs."""
    if not isinstance(env_id, str):
        raise InvalidInput("env_id: expected the id of an environment for a model, got an instance; name it")
    registered = {"action": "register", "name": "knowlyr-agent", "model": agent.model}
    settings = {"sampling": {"temperature": agent.temperature, "max_new_tokens": agent.max_new_tokens}}
    prompt = {} if agent.system_prompt is None else {"system_prompt": agent.system_prompt}
    known = call({**registered, **settings, **prompt})
    acting = {"agent": known["agent"]["id"], "environment": environment_name(env_id), "n_tasks": n_episodes}
    return [recorded_row(run) for run in collected({**acting, "max_turns": max_steps})]


class DatasetExporter:
    """Writes rows for training from a file of trajectories."""

    def __init__(self, trajectories_dir: str | Path, preferences_path: str | Path | None = None) -> None:
        """Name the file of trajectories, and one of preferences between them for `export_dpo`."""
        self.trajectories = Path(trajectories_dir)
        self.preferences = None if preferences_path is None else Path(preferences_path)

    def export_sft(self, output_path: str | Path) -> int:
        """Write successful runs as instruction and response; return the number of rows."""
        return self._export("sft", self.trajectories, output_path)

    def export_dpo(self, output_path: str | Path) -> int:
        """Write the preferences, or without any pairs of a better and a worse run of a task; return the number of rows."""
        if self.preferences is None:
            return self._export("dpo", self.trajectories, output_path)
        with TemporaryDirectory(prefix="knowlyr-") as aside:
            rows = with_task_texts(self.preferences, self.trajectories, Path(aside, self.preferences.name))
            return self._export("dpo", rows, output_path)

    def export_grpo(self, output_path: str | Path) -> int:
        """Write the runs of each task as a group with rewards; return the number of rows."""
        return self._export("grpo", self.trajectories, output_path)

    def export_benchmark(self, output_path: str | Path) -> int:
        """Write tasks with references; return the number of rows."""
        return self._export("benchmark", self.trajectories, output_path)

    def _export(self, kind: str, rows: Path, output_path: str | Path) -> int:
        share = {} if kind == "benchmark" else {"validation_share": 0}
        asked = {"action": "export", "kind": kind, "name": dataset_name(rows, kind), "path": str(rows.absolute())}
        answer = call({**asked, **share, "format": "knowlyr"})
        target = Path(output_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(answer["path"], EXPORTED[kind]), target)
        return int(answer["rows"])


def dataset_name(rows: Path, kind: str) -> str:
    """Return the name of the dataset of a file, by its content."""
    if not rows.is_file():
        raise NotFound(f"expected a file of rows at {str(rows)!r}, got none; name one that exists")
    return f"knowlyr-{kind}-{sha256(rows.read_bytes()).hexdigest()[:12]}"


def with_task_texts(preferences: Path, trajectories: Path, target: Path) -> Path:
    """Write preferences with the text of each task, which knowlyr leaves in the trajectories; return the file."""
    texts = {
        str(row.get("task_id")): row["metadata"]["task_description"]
        for row in read_objects(trajectories)
        if isinstance(row.get("metadata"), dict) and row["metadata"].get("task_description")
    }
    with target.open("w", encoding="utf-8") as file:
        for row in read_objects(preferences):
            text = texts.get(str(row.get("task_id")))
            known = {**row, "metadata": {"task_description": text, **(row.get("metadata") or {})}} if text else row
            file.write(f"{json.dumps(known, ensure_ascii=False)}\n")
    return target


class SFTConfig(NamedSettings):
    """Settings of a training under knowlyr's names."""

    def __init__(
        self, model_name_or_path: str, train_file: str | Path, output_dir: str | Path = "./output", **settings: Any
    ) -> None:
        """Describe a training; the settings are hyperparameters under knowlyr's or our names, and `seed`."""
        self.model_name_or_path, self.train_file, self.output_dir = model_name_or_path, str(train_file), str(output_dir)
        self.settings = settings

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """Read a config file."""
        return cls(**read_document(Path(path)))


class DPOConfig(SFTConfig):
    """Settings of DPO."""


class GRPOConfig(SFTConfig):
    """Settings of GRPO."""


class SFTTrainer:
    """Trains as a config describes and leaves the model in `output_dir`/final."""

    algorithm: ClassVar[str] = "sft"

    def __init__(self, config: SFTConfig) -> None:
        """Take the settings; nothing starts."""
        self.config = config

    def train(self) -> dict[str, Any]:
        """Train, and return the answer of the dict call; errors as of `call`."""
        settings = {"num_epochs": 3, "batch_size": 4, **self.config.settings}
        lora, folder = bool(settings.pop("use_lora", False)), str(Path(self.config.output_dir, "final"))
        model, rows = self.config.model_name_or_path, self.config.train_file
        return train(self.algorithm, model, rows, settings, use_lora=lora, output_dir=folder)


class DPOTrainer(SFTTrainer):
    """Trains by DPO."""

    algorithm: ClassVar[str] = "dpo"


class GRPOTrainer(SFTTrainer):
    """Trains by GRPO on groups of runs."""

    algorithm: ClassVar[str] = "grpo"
