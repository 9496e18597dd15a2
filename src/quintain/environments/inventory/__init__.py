"""`quintain/inventory`: questions about a small warehouse, answered by calling tools over several turns."""

from quintain.environments.inventory.environment import Inventory

__all__ = ["Inventory"]
