"""Requests for a training: fields beside the source, the agents that they name, and the key of the job."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError

from quintain.errors import InvalidInput
from quintain.records.agent import Agent
from quintain.records.hyperparameters.methods import ROLES
from quintain.records.jobs.job import JobSpec
from quintain.records.record import Record, Seed, explain
from quintain.tools.artifacts import mirror_of
from quintain.tools.labels.reward_parsing import RewardInput
from quintain.tools.services import Services
from quintain.tools.training.agents import require_policy, require_weights, resolve_agent
from quintain.tools.training.methods import describe_settings

AgentReference = Annotated[
    str,
    Field(description="Agent id or name, `starter`, a folder of a model or adapter, a GGUF file, a job."),
]
NewName = Annotated[
    str | None,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Name of the new agent; default: MODEL-METHOD.",
    ),
]
RewardArgument = Annotated[
    RewardInput | None,
    Field(
        description="Scorers by weight, in place of the reward of the environment or the data: "
        '{"outcome": 0.8, "length": 0.2}; multiplied: {"parts": {"outcome": 1, "length": 1}, "combine": "product"}.'
    ),
]
TrainingSeed = Annotated[Seed, Field(description="Seed of the order of data, and of new weights.")]
RequestKey = Annotated[
    str | None,
    Field(max_length=200, description="Repeats with this key return its unfinished job."),
]


class Request(Record):
    """Fields of a training beside source and settings, within the bounds of `start_training`."""

    model: AgentReference = "starter"
    name: NewName = None
    reward: RewardArgument = None
    seed: TrainingSeed = 0
    request_key: RequestKey = None


def read_request(document: Mapping[str, Any], where: str) -> Request:
    """Read and check the part of a config file that is a `Request`.

    Raises:
        InvalidInput: a value of the wrong type or out of bounds; the message states the bounds.
    """
    try:
        return Request.model_validate({name: document[name] for name in Request.model_fields if name in document})
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        raise InvalidInput(f"{explain(error, where)}; {name}: {describe_settings(Request)[name]}") from None


def start_agent(services: Services, method: str, model: str) -> Agent:
    """Return the agent that a training starts from: a policy, or for reward models a policy or a reward model."""
    agent = require_weights(resolve_agent(services, model), f"be trained by {method}")
    return agent if agent.role == ROLES.get(method) else require_policy(agent, f"be trained by {method}")


def new_output(services: Services, name: str) -> dict[str, str | None]:
    """Return a new folder for the agent of a job, and the URL of the copies of its checkpoints, as fields of its spec."""
    folder = str(services.settings.agents_dir / f"{name}-{uuid.uuid4().hex[:10]}")
    return {"output_dir": folder, "mirror": mirror_of(services, folder)}


def spec_key(spec: JobSpec) -> str:
    """Return the default request key: a hash of the request without its output folder."""
    return hashlib.sha256(spec.model_dump_json(exclude={"output_dir"}).encode()).hexdigest()
