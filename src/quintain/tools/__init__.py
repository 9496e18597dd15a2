"""One plain typed function for each tool: services in, record out. No mcp, no torch, no SQL."""

from quintain.tools.facade import RLTrainingTool

__all__ = ["RLTrainingTool"]
