"""The reward audit: rewards that were earned by something else than doing the task."""

from quintain.scoring.integrity.auditor import Auditor

__all__ = ["Auditor"]
