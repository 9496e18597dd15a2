"""One plain typed function for each tool: services in, record out. No mcp, no torch, no SQL.

`RLTrainingTool` and `Recorder` are imported when they are first asked for: a server that lists its tools needs neither.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quintain.tools.dict_calls.facade import RLTrainingTool
    from quintain.tools.dict_calls.recorder import Recorder
    from quintain.tools.dict_calls.trainers import (
        GRPOTrainerWrapper,
        SFTTrainerWrapper,
        create_accuracy_reward,
        create_lora_config,
        create_rl_dataset,
        create_sft_dataset,
    )

__all__ = [
    "GRPOTrainerWrapper",
    "RLTrainingTool",
    "Recorder",
    "SFTTrainerWrapper",
    "create_accuracy_reward",
    "create_lora_config",
    "create_rl_dataset",
    "create_sft_dataset",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"RLTrainingTool": "facade", "Recorder": "recorder"}.get(name, "trainers")
    return getattr(import_module(f"quintain.tools.dict_calls.{module}"), name)
