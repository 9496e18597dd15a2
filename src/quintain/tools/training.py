"""Training: start a job that trains an agent's model."""

from __future__ import annotations

import hashlib
import re
import uuid
from typing import Annotated, Any

from pydantic import Field, ValidationError

from quintain.errors import InvalidInput
from quintain.records.job import TrainSpec
from quintain.records.record import explain
from quintain.records.training import Method, SFTConfig
from quintain.tools.agents import require_free_name, resolve_agent
from quintain.tools.jobs import start
from quintain.tools.results import JobStarted
from quintain.tools.services import Services

METHODS: dict[str, tuple[type[SFTConfig], str]] = {
    "sft": (
        SFTConfig,
        "Supervised fine-tuning on what the agent wrote in good runs; everything else is context, masked in the loss.",
    ),
}
"""Method -> its hyperparameters and what it does."""


def start_training(
    services: Services,
    method: Annotated[Method, Field(description="`sft`: learn to repeat good runs.")],
    model: Annotated[str, Field(description="Agent to start from: agent id or name, `starter`, or a model folder.")],
    dataset_id: Annotated[str, Field(description="Dataset id or name from export_dataset.")],
    name: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
            description="Name of the resulting agent; default: NAME-METHOD.",
        ),
    ] = None,
    hyperparameters: Annotated[
        dict[str, Any] | None,
        Field(description="Settings of the method, checked strictly; see guide://methods/sft. Null: defaults."),
    ] = None,
    seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="Seed of data order and initialisation.")] = 0,
    request_key: Annotated[
        str | None,
        Field(max_length=200, description="Repeat-safe key: an unfinished job with the same key is returned instead."),
    ] = None,
) -> JobStarted:
    """Start training as a background job and answer at once with its id; the result is a new agent.

    The job survives the end of this conversation and of the server, and continues from its newest checkpoint when its
    process dies. The same request while one is unfinished returns that job (`deduplicated`).
    """
    require_free_name(name or "")
    config = read_hyperparameters(method, hyperparameters)
    agent = resolve_agent(services, model)
    dataset = services.store.datasets.get(dataset_id)
    if not dataset.splits.get("train"):
        raise InvalidInput(
            f"dataset {dataset.id} has no training rows; export it with a smaller validation_share",
            code="empty_dataset",
        )
    spec = TrainSpec(
        method=method,
        agent=agent,
        dataset_id=dataset.id,
        dataset_path=dataset.path,
        dataset_files=dataset.files,
        name=name or f"{agent.name}-{method}"[:100],
        output_dir="",
        config=config,
        seed=seed,
    )
    key = request_key or spec_key(spec)
    spec = spec.model_copy(
        update={"output_dir": str(services.settings.agents_dir / f"{spec.name}-{uuid.uuid4().hex[:10]}")}
    )
    return start(services, spec, key)


def read_hyperparameters(method: str, values: dict[str, Any] | None) -> SFTConfig:
    """Check a plain object against the method's settings.

    Raises:
        InvalidInput: an unknown method or field, a wrong type or a value out of bounds.
    """
    if method not in METHODS:
        raise InvalidInput(f"method {method!r} is not known; valid: {', '.join(METHODS)}")
    model = METHODS[method][0]
    try:
        return model.model_validate(values or {})
    except ValidationError as error:
        raise InvalidInput(
            f"{explain(error, 'hyperparameters')}; fields of {method}: {', '.join(model.model_fields)}"
        ) from None


def spec_key(spec: TrainSpec) -> str:
    """The default request key: what was asked, without where the result will lie."""
    return hashlib.sha256(spec.model_dump_json(exclude={"output_dir"}).encode()).hexdigest()


def describe_method(method: str) -> dict[str, Any]:
    """What a method does and every setting of it, from the one model that holds them."""
    model, summary = METHODS[method]
    fields = {
        field: {key: value for key, value in schema.items() if key != "title"}
        for field, schema in _inlined(model.model_json_schema())["properties"].items()
    }
    return {"method": method, "summary": summary, "hyperparameters": fields}


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema with its references to `$defs` put in place, so that each field can be read alone."""
    definitions = schema.get("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return resolve(definitions[re.sub(r".*/", "", value["$ref"])])
            return {key: resolve(inner) for key, inner in value.items() if key != "$defs"}
        if isinstance(value, list):
            return [resolve(inner) for inner in value]
        return value

    resolved: dict[str, Any] = resolve(schema)
    return resolved
