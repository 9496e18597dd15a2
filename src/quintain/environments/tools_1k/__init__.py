"""`quintain/tools-1k`: find one of a thousand tools and call it with the right arguments."""

from quintain.environments.tools_1k.environment import ThousandTools

__all__ = ["ThousandTools"]
