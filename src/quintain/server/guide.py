"""The instructions for a new assistant, and the guides: pipeline, curation, methods. Their texts are in `guides/`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quintain.tools.services import Services

_TEXTS = Path(__file__).parent / "guides"


def _text(name: str) -> str:
    return (_TEXTS / name).read_text(encoding="utf-8")


INSTRUCTIONS = _text("instructions.md").strip()


def pipeline_page(services: Services) -> str:
    """Return the guide of the whole pipeline."""
    from quintain.tools.training.planning.purposes import PURPOSES

    methods = {name: f" ({', '.join(meaning.methods)})" for name, meaning in PURPOSES.items() if meaning.methods}
    lines = [f"- `{name}`: {meaning.sentence}{methods.get(name, '')}" for name, meaning in PURPOSES.items()]
    return _text("pipeline.md").replace("{instructions}", INSTRUCTIONS).replace("{purposes}", "\n".join(lines))


def curation_page(services: Services) -> str:
    """Return the fields of `curation` of export_dataset."""
    from quintain.records.dataset import Curation
    from quintain.tools.training.methods import describe_settings

    lines = [f"- `{name}`: {about}" for name, about in describe_settings(Curation).items()]
    return "\n".join(["# `curation` of export_dataset", "", inspect.getdoc(Curation) or "", "", *lines, ""])


def method_guide(services: Services, method: str) -> str:
    """Return the guide of a training method.

    Raises:
        NotFound: there is no such method.
    """
    from quintain.errors import NotFound
    from quintain.tools.training.methods import METHODS, describe_method

    if method not in METHODS:
        raise NotFound(f"there is no method {method!r}; valid: {', '.join(METHODS)}")
    return method_page(describe_method(method))


def method_page(about: Mapping[str, Any]) -> str:
    """The guide of a method, as `describe_method` describes it: when to take it, what it learns from, and all of its settings."""
    method, kind = about["method"], about["dataset_kind"]
    source = f"a dataset of kind `{kind}`" + (", or an `environment`" if about["online"] else "")
    source = source if kind else "what it explores in an `environment`; it takes no dataset"
    advice = _text(f"methods/{method}.md").strip()
    lines = [f"# Method `{method}`", "", about["summary"], "", f"Learns from {source}.", "", advice, ""]
    lines += ["Settings, passed as `hyperparameters`; those with a dot stand in an object (`lora: {rank: 8}`):", ""]
    lines += [f"- `{name}` ({line.replace(': ', '): ', 1)}" for name, line in about["hyperparameters"].items()]
    lines += [
        "",
        "Names that other trainers use for these (num_train_epochs, lora_r, max_grad_norm, ...) are understood.",
    ]
    return "\n".join(lines)
