"""Writes docs/tutorials/conversation.md: a conversation with the server, from first runs to proof, and its picture.

Run as `python -m scripts.conversation` (about 5 minutes on 2 cores). What person and assistant say is written here; the
calls are made by a real MCP client against `quintain serve`, and their answers are what came back, shortened.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters
from mcp.types import ImageContent, TextContent

DOCS = Path(__file__).parents[1] / "docs" / "tutorials"
ENVIRONMENT = "quintain/inventory"
_ENDED = {"succeeded", "failed", "cancelled", "interrupted"}
_HEAD = """# A conversation, from first runs to proof

A real MCP client made these calls over stdio; the answers are shortened to the keys that matter, and the words of the
person and the assistant are ours. `python -m scripts.conversation` writes this page.
"""


class Conversation:
    """What was said and called so far, as the text of a page."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.lines = [_HEAD]

    def person(self, text: str) -> None:
        """What the person says."""
        self.lines.append(f"**You:** {text}\n")

    def assistant(self, text: str) -> None:
        """What the assistant says."""
        self.lines.append(f"**Assistant:** {text}\n")

    async def call(self, tool: str, arguments: Mapping[str, Any], show: Sequence[str] = ()) -> Mapping[str, Any]:
        """Call a tool and note the call, with the keys of the answer that are to be shown."""
        result = await self._client.call_tool(tool, dict(arguments))
        if result.is_error or result.structured_content is None:
            raise SystemExit(f"{tool} failed: {_text_of(result.content)}")
        answer: Mapping[str, Any] = result.structured_content
        if show:
            self.answer(tool, arguments, {key: answer[key] for key in show if answer.get(key) is not None})
        return answer

    async def job(self, tool: str, arguments: Mapping[str, Any], show: Sequence[str]) -> Mapping[str, Any]:
        """Start a job, wait until it has ended, and note both."""
        started = await self.call(tool, arguments, ("job_id", "status", "next_step"))
        view: Mapping[str, Any] = {"status": "queued"}
        while view["status"] not in _ENDED:
            view = await self.call("get_job", {"job_id": started["job_id"], "until": "done", "wait_s": 50})
        if view["status"] != "succeeded":
            raise SystemExit(f"{started['job_id']} is {view['status']}: {view['error']}")
        result = {key: view["result"][key] for key in show if view["result"].get(key) is not None}
        self.answer(
            "get_job",
            {"job_id": started["job_id"], "until": "done", "wait_s": 50},
            {"status": view["status"], "result": result},
        )
        return view

    async def picture(self, job_id: str, file_name: str, about: str) -> None:
        """Draw a job's curves into a file beside the page."""
        result = await self._client.call_tool("plot_job", {"job_id": job_id})
        (image,) = [block for block in result.content if isinstance(block, ImageContent)]
        await anyio.Path(DOCS / file_name).write_bytes(base64.b64decode(image.data))
        self.lines.append(f"`plot_job({json.dumps({'job_id': job_id})})`\n\n![{about}]({file_name})\n")

    def answer(self, tool: str, arguments: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Note a call and what came back."""
        self.lines.append(f"```text\n{tool}({json.dumps(arguments)})\n{json.dumps(answer, indent=2)}\n```\n")


def _brief(step: Mapping[str, Any]) -> dict[str, Any]:
    """What was thought, called and seen in a step."""
    seen = [observation["content"] for observation in step.get("observations", ())]
    calls = [{action["tool"]: action["args"]} for action in step.get("actions", ())]
    told = {"thought": step.get("thought"), "message": step.get("message"), "calls": calls, "seen": seen}
    return {key: value for key, value in told.items() if value}


def _text_of(content: Sequence[object]) -> str:
    return " ".join(block.text for block in content if isinstance(block, TextContent))


async def converse(client: Client) -> Conversation:
    """Collect, evolve, compare."""
    told = Conversation(client)
    told.person(
        "My little agent should answer questions about the warehouse. How good is it, and can you make it better?"
    )
    told.assistant("I give it a name, so that we can come back to it, and let it act first.")
    clerk = {"name": "clerk", "model": "starter"}
    registered = await told.call("register_agent", clerk)
    told.answer("register_agent", clerk, {"agent": {"id": registered["agent"]["id"]}})
    request = {"agent": "clerk", "environment": ENVIRONMENT, "n_tasks": 40, "attempts": 2}
    runs = await told.job("collect_rollouts", request, ("n", "n_error", "success_rate", "trajectories"))
    failed = {**runs["result"]["trajectories"]["filter"], "outcome": "failure"}
    found = await told.call("search_trajectories", {"filter": failed, "limit": 1}, ())
    told.assistant(f"It solves {runs['result']['success_rate']:.0%} of its episodes. Let me read one that failed.")
    one = {"trajectory_id": found["items"][0]["id"]}
    read = await told.call("get_trajectory", one)
    told.answer("get_trajectory", one, {"steps": [_brief(step) for step in read["trajectory"]["steps"][2:]]})
    told.person("Then let it learn from its own good runs, as long as that helps.")
    evolve = {
        "method": "evolve",
        "model": "clerk",
        "name": "clerk-evolved",
        "environment": ENVIRONMENT,
        "hyperparameters": {"iterations": 3, "tasks_per_iteration": 100},
    }
    evolved = await told.job("start_training", evolve, ("agent", "success_rate", "report"))
    await told.picture(evolved["job_id"], "conversation.png", "success on held-out tasks, round by round")
    told.person("Is it really better, or was that luck?")
    told.assistant("I measure both on the same held-out tasks, which no round has seen, and compare them task by task.")
    for agent in ("clerk", "clerk-evolved"):
        measure = {"agent": agent, "environment": ENVIRONMENT, "n_tasks": 200, "seed": 7}
        await told.job("evaluate_agent", measure, ("evaluation_id", "n", "success_rate"))
    compare = {"agents": ["clerk", "clerk-evolved"], "environment": ENVIRONMENT}
    compared = await told.call("compare_agents", compare)
    (pair,) = compared["comparisons"]
    shown = ("a", "b", "difference", "ci_low", "ci_high", "p", "p_method", "significant", "n_tasks", "only_a", "only_b")
    told.answer("compare_agents", compare, {"comparisons": [{key: pair[key] for key in shown}]})
    verdict = "It is better" if pair["significant"] and pair["difference"] > 0 else "I cannot tell them apart"
    told.assistant(
        f"{verdict}: {pair['difference']:+.0%} on {pair['n_tasks']} tasks, 95 % interval {pair['ci_low']:+.0%} to "
        f"{pair['ci_high']:+.0%}, p = {pair['p_corrected']:.1g} (exact McNemar)."
    )
    return told


async def main() -> None:
    """Write the page and its picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "quintain.cli.main", "serve", "--home", home],
            env={"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        async with Client(server) as client:
            told = await converse(client)
    await anyio.Path(DOCS / "conversation.md").write_text("\n".join(told.lines), encoding="utf-8")


if __name__ == "__main__":
    anyio.run(main)
