"""References to agents: the grammar of `agent` and `model` arguments, and `register_agent`."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from quintain.artifacts.vocabularies import has_vocabulary
from quintain.endpoints.client import missing_key
from quintain.endpoints.profiles import find_profile
from quintain.errors import InvalidInput, NotFound, QuintainError, Refused, Unavailable
from quintain.next_step import Hint, call
from quintain.records.agent import MAX_NEW_TOKENS, Agent, ModelRef, Sampling
from quintain.records.labels.judging import Endpoint
from quintain.records.wording import clip, explain, list_names, shown
from quintain.settings import has_secret
from quintain.tools.data.lineage import forgotten_sources_note
from quintain.tools.results import AgentResult
from quintain.tools.run_selection import short_schema
from quintain.tools.services import Services, find
from quintain.tools.training.model_folders import HUB_NAME, near_models, starter_folder
from quintain.tools.training.model_references import agent_of_job, agent_of_path, path_of, store_base
from quintain.tools.training.planning.gguf_header import require_loadable as require_gguf
from quintain.tools.training.planning.loadable_folders import require_loadable as require_folder
from quintain.tools.training.planning.model_files import DEQUANTISED, stored_quantization

EXPERT = "expert"
"""The agent of the environments' scripted experts."""

ENDPOINT = "endpoint:"
"""Prefix of references to endpoint profiles."""


def register_agent(
    services: Services,
    name: Annotated[str, Field(description="Letters, digits, `.`, `_`, `-`; a new version if it exists.")],
    model: Annotated[
        str,
        Field(
            description="Agent id or name, `starter`, a folder or URL of a model or adapter, a GGUF file, a job or its checkpoint, "
            "a Hub name or endpoint:NAME."
        ),
    ],
    system_prompt: Annotated[
        str | None,
        Field(max_length=20_000, description="Replaces the environment's; null: that."),
    ] = None,
    sampling: Annotated[
        Sampling | None,
        Field(description="As of evaluate_agent; left out: as the model's agent."),
        short_schema("object", maxProperties=len(Sampling.model_fields)),
    ] = None,
    template: Annotated[
        Literal["auto", "tools", "react"],
        Field(description="Native tool calls, ReAct text, or automatic."),
    ] = "auto",
    description: Annotated[str, Field(max_length=2000, description="A note for people.")] = "",
) -> AgentResult:
    """Name a model with its system prompt and sampling settings.

    Base models are registered when first used, trained agents by their job. The same name with other content makes the next
    version.
    """
    require_free_name(name)
    system_prompt = None if system_prompt is None else services.redacted(system_prompt)
    is_endpoint = model.startswith(ENDPOINT)  # whose own agent is not stored
    named = model.removeprefix(ENDPOINT)
    origin = _agent_of_endpoint(services, named) if is_endpoint else _require_files(resolve_agent(services, model))
    try:
        agent = Agent(
            name=name,
            model=origin.model,
            system_prompt=system_prompt if system_prompt is not None else origin.system_prompt,
            sampling=sampling_of(services, origin, sampling),
            template=template,
            role=origin.role,
            held_out=origin.held_out,
            description=services.redacted(description),
            parent=origin.id,
        )
    except ValidationError as error:
        raise InvalidInput(explain(error, "arguments")) from None
    stored = services.store.agents.add(agent, services.clock())
    return AgentResult(
        agent=stored.without_install_path(),
        resource_uri=f"agent://{stored.id}",
        next_step=Hint(
            forgotten_sources_note(services, stored.id),
            "Measure it with ",
            call("evaluate_agent", agent=stored.id, environment="quintain/inventory"),
            ".",
        ),
    )


def sampling_of(services: Services, agent: Agent, sampling: Sampling | None) -> Sampling:
    """Return the sampling of the agent with the given fields replaced.

    Raises:
        InvalidInput: the agent acts through an endpoint whose protocol lacks one of them.
    """
    asked = {} if sampling is None else {name: getattr(sampling, name) for name in sampling.model_fields_set}
    changed = agent.sampling.model_copy(update=asked)
    if changed.min_p and agent.model.source == "endpoint":
        endpoint = find_profile(services.settings.endpoints_file, agent.model.path)
        if endpoint.protocol == "anthropic":
            raise InvalidInput(
                f"sampling.min_p: expected 0 for the endpoint {agent.model.path!r}, whose protocol (anthropic) has no min_p, got "
                f"{changed.min_p:g}; leave it out, or give top_p or top_k"
            )
    return changed


def sampling_like(services: Services, agent_id: str, other: Sampling) -> dict[str, Any]:
    """Return the argument `sampling` by which an agent samples as another one did; none where it does so by itself."""
    agent = find(services.store.agents.get, agent_id)
    own = Sampling() if agent is None else agent.sampling
    differing = {name: value for name, value in other if value != getattr(own, name)}
    return {"sampling": differing} if differing else {}


def require_free_name(name: str) -> None:
    """Refuse a reserved name.

    Raises:
        InvalidInput: `starter` always names the embedded model, and `expert` the scripted experts.
    """
    if name == "starter":
        raise InvalidInput("the name 'starter' always means the embedded model; give your agent another name")
    if name == EXPERT:
        raise InvalidInput(f"the name {EXPERT!r} always means the scripted experts; give your agent another name")


def resolve_agent(services: Services, reference: str) -> Agent:
    """Return the stored agent of a reference; a base model becomes `agent:NAME@1` on first use.

    Raises:
        NotFound: nothing has this name, there is no such endpoint profile, or the folder contains no model.
        Refused: a folder outside the allowed roots, or a Hub name without the operator's permission.
    """
    reference = reference.removeprefix("agent://").removeprefix("job://")  # `resource_uri` of results
    if (planned := services.planned.get(reference.removeprefix("agent:"))) is not None:
        return planned
    if reference.startswith(ENDPOINT):
        return store_base(services, _agent_of_endpoint(services, reference.removeprefix(ENDPOINT)))
    if reference == EXPERT:
        scripts = ModelRef(source="expert", path="")
        return store_base(
            services, Agent(name=EXPERT, model=scripts, description="The environments' scripted experts.")
        )
    known = services.store.agents.find(reference)
    if known is not None:
        return _with_starter_path(known)
    if reference == "starter":
        model = ModelRef(source="starter", path=str(starter_folder()))
        agent = Agent(name="starter", model=model, description="The embedded model.")
        return services.store.agents.add(agent, services.clock())
    if not reference.strip() or len(reference) > 1000 or "\0" in reference:
        raise InvalidInput(
            f"{clip(reference)!r} is not an agent: give an agent id or name, 'starter', a folder, endpoint:NAME or a Hub name"
        )
    if (trained := agent_of_job(services, reference)) is not None:
        return trained
    if (path := path_of(services, reference)) is not None:
        return agent_of_path(services, path, reference)
    if HUB_NAME.match(reference):
        return _agent_of_hub(services, reference)
    try:
        return services.store.agents.get(reference)
    except NotFound as error:
        raise NotFound(Hint(error.message, ". ", near_models(services, reference))) from None


def resolve_scorer(services: Services, reference: str) -> Agent:
    """Return the agent of a reference with or without `agent:` before it; errors as of `resolve_agent`."""
    name = reference.removeprefix("agent:")
    return resolve_agent(services, reference if "@" in name else name)


def require_policy(agent: Agent, purpose: str) -> Agent:
    """Return the agent if it is a policy.

    Raises:
        InvalidInput: it is a reward model or a retriever; the message names its uses.
    """
    if agent.role == "policy":
        return agent
    does, use = "finds tools", Hint(f"environment 'quintain/tools-1k?retriever={agent.id_or_name}'")
    if agent.role != "retriever":
        does = f"scores {'steps' if agent.role == 'step_model' else 'whole runs'}"
        use = Hint(
            call("score_trajectories", scorer=agent.id_or_name, filter=...), " or as reward_model of method grpo"
        )
    what = f"{agent.id_or_name} is a {agent.role.replace('_', ' ')}: it {does} and cannot {purpose}; name a policy, and use it in "
    raise InvalidInput(Hint(what, use), code="not_a_policy")


def own_model(services: Services) -> str:
    """Return the name of the model that was registered last and can be trained; 'starter' where there is none."""
    for agent in services.store.agents.page().items:
        is_base = agent.job_id is None and agent.role == "policy" and agent.model.source in {"folder", "gguf", "hub"}
        with suppress(QuintainError):
            if is_base:
                return _require_files(agent).name
    return "starter"


def require_weights(agent: Agent, purpose: str) -> Agent:
    """Return the agent if its weights are on this machine or can be.

    Raises:
        InvalidInput: it acts through an endpoint, or is a script; the message names its uses. Or a file of its weights is gone or damaged.
        NotFound: its folder or GGUF file is not here.
    """
    if agent.model.source == "expert":
        raise InvalidInput(
            Hint(
                f"{agent.id} is a script without weights, so it cannot {purpose}; name 'starter', a model folder or a trained "
                "agent. Train one on its demonstrations: ",
                call("collect_rollouts", agent=EXPERT, environment=...),
            ),
            code="no_weights",
        )
    if agent.model.source == "endpoint":
        raise InvalidInput(
            f"{agent.id_or_name} acts through the endpoint {agent.model.path!r}, and its weights are not here, so it cannot "
            f"{purpose}; name 'starter', a model folder or a trained agent. An endpoint's agent can act, be evaluated and be "
            "compared, and others can be trained on its runs",
            code="no_weights",
        )
    return _require_files(agent)


def _require_files(agent: Agent) -> Agent:
    """Return the agent unless a file of its weights is gone or damaged."""
    if agent.model.source == "gguf":
        require_gguf(Path(agent.model.path))
    for folder in (agent.model.path if agent.model.source == "folder" else None, agent.model.adapter):
        if folder is not None and not Path(folder).is_dir():
            raise NotFound(
                f"the weights of {agent.id_or_name} are not at {folder}: they were moved, or belong to another home on this "
                "database; a moved home is mended by `quintain doctor`, else put them back, or export the agent there and register "
                "the folder here",
                code="model_not_found",
            )
    if agent.model.source == "folder":
        require_folder(
            Path(agent.model.path),
            own_tokenizer=agent.model.adapter is None or not has_vocabulary(Path(agent.model.adapter)),
        )
        stored = stored_quantization(agent.model)
        if stored is not None and stored not in DEQUANTISED:
            raise InvalidInput(
                f"expected weights as floats or quantised by {list_names(sorted(DEQUANTISED))}, got {agent.id_or_name}, whose "
                f"weights are quantised by {stored}; name the folder of its plain weights, and set quantization where they do not fit",
                code="unsupported_model",
            )
        if stored == "bitsandbytes":
            require_bitsandbytes(f"the stored weights of {agent.id_or_name}")
    return agent


def require_loadable(agent: Agent) -> Agent:
    """Return the agent if a job can load its model, as far as that shows before."""
    _require_files(agent)
    if agent.model.quantization is not None:
        require_bitsandbytes(f"the base of {agent.id_or_name} in {agent.model.quantization}")
    return agent


def require_bitsandbytes(purpose: str) -> None:
    """Refuse a job that needs bitsandbytes where it is not installed.

    Raises:
        Unavailable: it is not installed; the message names the extra.
    """
    if find_spec("bitsandbytes") is None:
        raise Unavailable(
            f"expected the package bitsandbytes for {purpose}, got none; pip install 'quintain[quantized]' and restart the server",
            code="missing_extra",
        )


def endpoint_of(services: Services, agent: Agent) -> Endpoint | None:
    """Return the endpoint profile of an agent for the spec of a job; None for local weights.

    Raises:
        NotFound: the profile is gone.
        InvalidInput: the profile names another model by now, or the variable of its key is not set.
        Refused: the profile is not safe to use.
    """
    if agent.model.source != "endpoint":
        return None
    endpoint = find_profile(services.settings.endpoints_file, agent.model.path)
    if endpoint.model != agent.model.revision:
        raise InvalidInput(
            Hint(
                f"{agent.id_or_name} is the model {shown(agent.model.revision)} behind endpoint {endpoint.name!r}, whose "
                f"profile names {shown(endpoint.model)} by now: ",
                call("register_agent", name=agent.name, model=f"{ENDPOINT}{endpoint.name}"),
                " makes the next version of it",
            ),
            code="endpoint_changed",
        )
    require_key(endpoint)
    return endpoint


def require_key(endpoint: Endpoint) -> None:
    """Refuse an endpoint without its key, before a job starts that would fail.

    Raises:
        InvalidInput: names the variable.
    """
    if endpoint.api_key_env is not None and not has_secret(endpoint.api_key_env):
        raise InvalidInput(missing_key(endpoint), code="missing_key")


def require_reward_model(agent: Agent, purpose: str) -> Agent:
    """Return the agent if it is a reward model of runs or steps.

    Raises:
        InvalidInput: it is a policy or a retriever.
    """
    if agent.role not in ("reward_model", "step_model"):
        raise InvalidInput(
            Hint(
                f"{agent.id_or_name} is a {agent.role} and cannot {purpose}; name an agent that was trained with method 'reward' or "
                "'prm' (",
                call("list_library", kind="agents"),
                " shows each agent's role)",
            ),
            code="not_a_reward_model",
        )
    return agent


def retriever_folder(agent: Agent) -> str:
    """Return the folder of a retriever's model, or of its adapter.

    Raises:
        InvalidInput: it is not a retriever.
    """
    if agent.role != "retriever":
        raise InvalidInput(
            Hint(
                f"expected an agent of method 'retriever' to find tools, got {agent.id_or_name}, a {agent.role.replace('_', ' ')}; "
                "train one on recorded calls: ",
                call("start_training", method="retriever", model="starter", dataset_id=...),
            ),
            code="not_a_retriever",
        )
    return agent.model.own_path


def agreement_note(agent: Agent | None) -> str:
    """Return a note on the held-out accuracy of a reward model; without one, an empty text."""
    if agent is None:
        return ""
    if agent.held_out is None:
        return (
            f"The accuracy of {agent.id} is unknown: it has no held-out labels (export its data with `validation_share`, and "
            "train it again)."
        )
    return f"{agent.id} met {agent.held_out}."


def _with_starter_path(agent: Agent) -> Agent:
    # The package may have moved since the agent was stored (a new virtual environment on the same home folder).
    if agent.model.source != "starter":
        return agent
    return agent.model_copy(update={"model": agent.model.model_copy(update={"path": str(starter_folder())})})


def _agent_of_endpoint(services: Services, name: str) -> Agent:
    endpoint = find_profile(services.settings.endpoints_file, name)
    return Agent(
        name=name,
        model=ModelRef(source="endpoint", path=name, revision=endpoint.model),
        sampling=Sampling(max_new_tokens=min(endpoint.max_tokens, MAX_NEW_TOKENS)),
        description=f"Acts through the endpoint {name!r}.",
    )


def _agent_of_hub(services: Services, name: str) -> Agent:
    if not services.settings.allow_hub:
        raise Refused(
            f"expected a known agent or folder, got {name!r}, and Hub names are disabled; use 'starter', a folder under the allowed "
            f"roots, or let the operator set QUINTAIN_ALLOW_HUB=1. {near_models(services, name)}",
            code="hub_not_allowed",
        )
    agent = Agent(name=name.split("/")[-1].lstrip("._-")[:100], model=ModelRef(source="hub", path=name))
    return store_base(services, agent)
