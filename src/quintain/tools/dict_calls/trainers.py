"""What the trainers of other libraries share: dict calls that raise, files of rows, and one way to train."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quintain.datasets.row_files import rows_of
from quintain.errors import InvalidInput, NotFound, TrainingFailed
from quintain.importers.protocol import Report
from quintain.settings import read_settings
from quintain.tools.dict_calls.facade import RLTrainingTool
from quintain.tools.services import Services, open_services


class NamedSettings:
    """A description of a training whose `settings` are attributes too."""

    settings: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("settings", {})
        if name not in settings:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return settings[name]


@contextmanager
def opened(home: str | Path | None = None) -> Iterator[Services]:
    """Open a home folder, as of `call`, to read what a call has stored."""
    services = open_services(read_settings(None if home is None else Path(home)), trusted=True)
    try:
        yield services
    finally:
        services.close()


def call(parameters: Mapping[str, Any], home: str | Path | None = None) -> dict[str, Any]:
    """Make one dict call in a home folder and return its answer.

    Args:
        parameters: As `RLTrainingTool.run` takes them.
        home: Home folder; None: that of the environment.

    Raises:
        TrainingFailed: the call was refused or its job failed; message and code are those of the answer.
    """
    tool = RLTrainingTool(home)
    try:
        answer: dict[str, Any] = json.loads(tool.run(parameters))
    finally:
        tool.close()
    if answer["status"] == "error":
        raise TrainingFailed(str(answer.get("message")), code=str(answer.get("code", "failed")))
    return answer


def train(
    algorithm: str,
    model: str,
    dataset: Any,
    settings: Mapping[str, Any],
    *,
    use_lora: bool,
    home: str | Path | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Train by a dict call and return its answer: `output_dir`, `agent`, `final_loss` and more.

    Args:
        algorithm: The method.
        model: Agent, model folder, or name in the inbox.
        dataset: Rows, or their name.
        settings: Hyperparameters under anybody's names, and `seed`.
        use_lora: Train adapters.
        home: As of `call`.
        **more: Further parameters of the dict call.

    Raises:
        TrainingFailed: as `call`.
    """
    hyperparameters = dict(settings)
    seed = {"seed": hyperparameters.pop("seed")} if "seed" in hyperparameters else {}
    request = {"action": "train", "algorithm": algorithm, "model_name": model, "dataset": dataset, "use_lora": use_lora}
    return call({**request, "hyperparameters": hyperparameters, **seed, **more}, home)


def read_objects(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file.

    Raises:
        NotFound: the file does not exist.
        InvalidInput: a row is not an object.
    """
    if not path.is_file():
        raise NotFound(f"expected a file of rows at {str(path)!r}, got none; name one that exists")
    report = Report()
    rows = [row.value for row in rows_of(path, report)]
    faults = [*(why for _, why in report.rejected), *(type(row).__name__ for row in rows if not isinstance(row, dict))]
    if faults:
        raise InvalidInput(f"{path}: expected rows that are objects, got {faults[0]}; write one object a line")
    return rows
