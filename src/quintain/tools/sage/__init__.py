"""SAGE's trainers of agents for Python programs, over the dict calls of `RLTrainingTool`.

from quintain.tools.sage import AgentSFTConfig, AgentSFTTrainer
AgentSFTTrainer(AgentSFTConfig(base_model="starter", train_data="agent_sft:train", num_epochs=3)).train()
"""

from quintain.tools.sage.rewards import AgentRewardConfig, AgentRewardModel, AgentTrainingEvaluator
from quintain.tools.sage.trainers import (
    AgentLoRATrainer,
    AgentRLTrainer,
    AgentSFTConfig,
    AgentSFTFormatter,
    AgentSFTTrainer,
    AgentTrainingUsage,
    RLTrainingConfig,
)

__all__ = [
    "AgentLoRATrainer",
    "AgentRLTrainer",
    "AgentRewardConfig",
    "AgentRewardModel",
    "AgentSFTConfig",
    "AgentSFTFormatter",
    "AgentSFTTrainer",
    "AgentTrainingEvaluator",
    "AgentTrainingUsage",
    "RLTrainingConfig",
]
