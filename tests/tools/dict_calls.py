"""The tools as dict calls."""

from __future__ import annotations

import json
from typing import Any

from quintain.tools import RLTrainingTool


class Caller(RLTrainingTool):
    """The facade; a call answers with what its JSON contains."""

    def __call__(self, **parameters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(parameters))
        return answer

    def record(self, **parameters: Any) -> dict[str, Any]:
        """Record a run."""
        return self(action="record", **parameters)

    def found(self, **filter: Any) -> list[str]:
        """Return the ids of the runs that a filter finds."""
        return [item["id"] for item in self(action="search", filter=filter)["items"]]
