"""`quintain train`: start a training or a recipe from a file or from options, and watch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from quintain.cli.border import REFUSED, Command
from quintain.cli.jobs import watch
from quintain.cli.remedies import in_commands
from quintain.errors import InvalidInput
from quintain.records.documents import parse_yaml, read_document
from quintain.records.job import UNFINISHED
from quintain.records.record import clip
from quintain.tools.results import JobView
from quintain.tools.training.config_files import start_config

_SOURCES = ("dataset", "text", "environment")


def run_train(
    config: Path | None, given: Mapping[str, Any], settings: Sequence[str], *, detach: bool, home: Path | None
) -> int:
    """Start what the file and the options ask for and follow it; returns the exit status.

    Args:
        config: A file with a request or a recipe.
        given: Parts of the request that take the place of the file's.
        settings: Hyperparameters as KEY=VALUE, which go before the file's.
        detach: Do not wait for the end.
        home: The home folder; None: the one of the settings.

    Returns:
        0: succeeded (or started, with `detach`); 1: ended otherwise; 2: not started; 130: left running by Ctrl-C.
    """
    console = Console(soft_wrap=True)
    with Command(home) as command:
        document = _document(config, given)
        changes = read_settings(settings)
        services = command.services()
        folder = config.absolute().parent if config is not None else Path.cwd()
        started = start_config(services, document, changes, folder)
        if detach:
            console.print(started.job_id, markup=False)
            return 0
        view = watch(services, started.job_id, console)
        if view.status in UNFINISHED:
            return 130
        _tell(console, view)
        return 0 if view.status == "succeeded" else 1
    return REFUSED


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE pairs as a mapping: values are YAML, a dot in a key leads into a group.

    Raises:
        InvalidInput: a pair has no `=`, a key comes twice, or a value is not YAML.
    """
    values: dict[str, Any] = {}
    for pair in settings:
        key, equals, text = pair.partition("=")
        group, _, member = key.strip().partition(".")
        try:
            value = parse_yaml(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"--set {clip(pair)}: the value cannot be read: {error}") from None
        target = values.setdefault(group, {}) if member else values
        if not equals or not group or not isinstance(target, dict) or (member or group) in target:
            raise InvalidInput(
                f"--set {clip(pair)}: give KEY=VALUE, such as epochs=2 or lora.rank=8, and each key once"
            )
        target[member or group] = value
    return values


def _document(config: Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    if config is None and "method" not in given:
        raise InvalidInput("nothing says how to train; give --config FILE, or --method with --dataset or --environment")
    document = read_document(config) if config is not None else {}
    if any(source in given for source in _SOURCES):
        document = {key: value for key, value in document.items() if key not in _SOURCES}
    return {**document, **given}


def _tell(console: Console, view: JobView) -> None:
    result, error = view.result, view.error
    if error is not None:
        console.print(f"[{error.code}] {error.message} {error.hint}".strip(), style="red", markup=False)
    if result is not None:
        facts = {
            "agent": result.agent,
            "final loss": result.final_loss,
            "success rate": result.success_rate,
            "evaluation": result.evaluation_id,
        }
        for name, value in facts.items():
            if value is not None:
                console.print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}", markup=False)
        for stage in result.report.get("stages", ()):
            told = {
                key: stage.get(key) for key in ("agent", "final_loss", "success_rate") if stage.get(key) is not None
            }
            console.print(f"  {stage['stage']}: {told}", markup=False, highlight=False)
    console.print(in_commands(f"{view.job_id} is {view.status}. {view.next_step}"), markup=False)
