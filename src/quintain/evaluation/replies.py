"""What a policy answered, as a step of the trajectory, and what the answers of an episode cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quintain.records.seams import Reply, Stop
from quintain.records.trajectory import Actor, Step, Usage

COST = "cost_usd"
"""The metric by which an episode says what endpoints charged for it; an environment names its own share by it."""


def agent_step(reply: Reply, model: str | None) -> Step:
    """A turn of the agent; of one that could not be read the message holds what was written.

    Args:
        reply: What the policy wrote.
        model: Who wrote it, where the reply does not say.
    """
    readable = reply.error is None and (reply.thought is not None or reply.actions)
    refused = reply.stop is Stop.REFUSED
    extra = {
        "stop": None if reply.stop is Stop.END else reply.stop.value,
        "reasoning": reply.reasoning,
        "cost_usd": reply.cost_usd,
    }
    return Step(
        actor=Actor.AGENT,
        message="" if readable else reply.text,
        thought=reply.thought if readable else None,
        actions=reply.actions if readable else (),
        train=False if refused else None,  # the agent wrote nothing
        model=reply.model or model,
        usage=_usage(reply),
        sampled=reply.sampled,
        extra={name: value for name, value in extra.items() if value is not None},
    )


def output_tokens(replies: Sequence[Reply]) -> int:
    """Tokens that an agent wrote, as far as it is known."""
    return sum(used.output_tokens or 0 for reply in replies if (used := _usage(reply)) is not None)


def with_cost(metrics: Mapping[str, float], replies: Sequence[Reply]) -> dict[str, float]:
    """The metrics of an episode with all that was charged for it; without `COST` where a part of that is not known.

    Args:
        metrics: Of the environment; its `COST` is what its own endpoints charged.
        replies: Of the agent, in any order.
    """
    charged = [reply.cost_usd for reply in replies if reply.usage is not None]
    if not charged:
        return dict(metrics)
    known = [cost for cost in charged if cost is not None]
    if len(known) < len(charged):
        return {name: value for name, value in metrics.items() if name != COST}
    return {**metrics, COST: metrics.get(COST, 0.0) + sum(known)}


def _usage(reply: Reply) -> Usage | None:
    return Usage(output_tokens=len(reply.sampled.token_ids)) if reply.sampled else reply.usage
