"""`quintain show`: anything that is stored, by its id or name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from rich.console import Console

from quintain.cli.commands.evaluate import print_report
from quintain.cli.commands.jobs import print_job
from quintain.cli.commands.library import moment, share
from quintain.cli.layout import print_facts, print_table
from quintain.cli.session import CommandRun, plain_console, show_next_step
from quintain.errors import InvalidInput
from quintain.evaluation.reports.report import comparison_report, evaluation_report
from quintain.records.agent import Agent
from quintain.records.evaluation import Evaluation
from quintain.records.lineage import LineageNode
from quintain.records.text import printable
from quintain.records.wording import counted
from quintain.tools.jobs.jobs import get_job
from quintain.tools.results import TrajectoryView
from quintain.tools.services import Services

_STEP_OPTIONS = ("first_step", "limit", "max_chars")


def run_show(use: CommandRun) -> int:
    """Show a stored thing; returns the exit status.

    Raises:
        NotFound: nothing stored has this id, name or session.
        InvalidInput: an option about steps with a thing that has none.
    """
    services = use.services()
    name = use.arguments["trajectory_id"]
    if "://" in name:
        return _show_resource(use, services, name)
    nodes = services.store.lineage.nodes(services.store.lineage.resolve(name))
    if nodes[0].kind != "trajectory" and (options := [one for one in _STEP_OPTIONS if one in use.arguments]):
        flag = f"--{options[0].replace('_', '-')}"
        raise InvalidInput(f"expected a run with {flag}, got the {nodes[0].kind} {nodes[0].id}; leave {flag} out")
    if len(nodes) > 1:
        _show_session(name, nodes, json_out=use.json_out)
    elif nodes[0].kind == "trajectory":
        use.show(use.call(services, trajectory_id=nodes[0].id), _show_run)
    else:
        _show_other(use, services, nodes[0])
    return 0


def _show_resource(use: CommandRun, services: Services, uri: str) -> int:
    """Print what MCP clients read as a resource, such as a guide or a leaderboard."""
    from quintain.server.resources import read, resource_specs
    from quintain.tools.catalog import CATALOG

    kind, _, name = uri.partition("://")
    environment, suites, suite = name.partition("/suites/")
    asked = f"leaderboard://{quote(unquote(environment), safe='')}{suites}{suite}" if kind == "leaderboard" else uri
    content, media_type = read(resource_specs(CATALOG), services, asked)
    if isinstance(content, bytes):
        raise InvalidInput(f"expected the address of a text, got {uri}, which is {media_type}; use quintain plot")
    if media_type == "application/json" and not use.json_out:
        found = json.loads(content)
        (_show_leaderboard if kind == "leaderboard" else print_facts)(plain_console(), found)
        return 0
    print(json.dumps({"uri": uri, "text": content}) if use.json_out else content)
    return 0


def _show_leaderboard(console: Console, found: Mapping[str, Any]) -> None:
    console.print(printable(f"{found['environment']}: {found['name']}"), style="bold")
    names = ("rank", "agent", "success, 95 % interval", "episodes", "group", "evaluation")
    rows = [
        (
            *(one["rank"], one["agent"].removeprefix("agent:")),
            f"{share(one['success_rate'])} [{share(one['ci_low'])}, {share(one['ci_high'])}]",
            *(one["n"], one["group"], one["evaluation_id"]),
        )
        for one in found["rows"]
    ]
    print_table(console, names, rows)
    for other in found["others"]:
        address = f"leaderboard://{quote(found['environment'], safe='/')}/suites/{other['suite_hash']}"
        console.print(printable(f"Another suite, {counted(other['agents'], 'agent')}: {other['name']}, {address}"))


def _show_session(name: str, nodes: list[LineageNode], *, json_out: bool) -> None:
    console = plain_console()
    if json_out:
        console.print(json.dumps([node.model_dump(mode="json", exclude_none=True) for node in nodes]))
        return
    console.print(printable(f"Session {name} has {len(nodes)} runs; show one of them by its id."))
    print_table(console, ("run", "task", "created (UTC)"), [(n.id, n.label, moment(n.created_at)) for n in nodes])


def _show_other(use: CommandRun, services: Services, node: LineageNode) -> None:
    """Show a job, dataset, agent, evaluation or comparison; of a checkpoint its place in the lineage."""
    store = services.store
    match node.kind:
        case "job":
            use.show(get_job(services, node.id), print_job)
        case "evaluation":
            evaluation = store.evaluations.get(node.id)
            use.show(evaluation, lambda console, one: print_report(console, evaluation_report(one)))
        case "comparison":
            comparison = store.evaluations.get_comparison(node.id)
            use.show(comparison, lambda console, one: print_report(console, comparison_report(one)))
        case "agent":
            evaluations = store.evaluations.of_agent(node.id)
            agent = store.agents.get(node.id).without_install_path()
            use.show(agent, lambda console, one: _show_agent(console, one, evaluations))
        case _:
            other = store.datasets.get(node.id) if node.kind == "dataset" else node
            use.show(other, lambda console, one: print_facts(console, one.model_dump(exclude={"files"})))


def _show_agent(console: Console, agent: Agent, found: Sequence[Evaluation]) -> None:
    print_facts(console, agent.model_dump(exclude={"name", "version"}))
    rows = [
        (one.id, one.environment, share(one.rate.value), one.rate.n, one.split, moment(one.created_at)) for one in found
    ]
    if rows:
        console.print()
        print_table(console, ("evaluation", "environment", "success", "tasks", "split", "created (UTC)"), rows)


def _show_run(console: Console, view: TrajectoryView) -> None:
    run = view.trajectory
    task = dict(run.get("task") or {})
    prompt = task.pop("prompt", "")
    outcome = run.get("outcome") or {"status": "unknown"}
    facts = {
        "run": run.get("id"),
        "agent": (run.get("agent") or {}).get("name"),
        "environment": task.get("environment"),
        "task": task.get("id"),
        "outcome": outcome,
        "tags": run.get("tags"),
        "scores": {_scored_by(one): one.get("value", "unscored") for one in view.scores},
        "steps": view.total_steps,
        "prompt": prompt,
    }
    print_facts(console, facts)
    for place, step in enumerate(run.get("steps", ()), view.first_step):
        left_out = ", which no training uses" if place in view.masked else ""
        console.print(printable(f"\n[{place}] {step.get('actor', 'agent')}{left_out}"), style="bold")
        for line in _step_lines(step):
            console.print(printable(line))
    console.print()
    show_next_step(console, view)


def _scored_by(score: Mapping[str, Any]) -> str:
    """Return the scorer of a stored score, with its rubric and rater where it has them."""
    return " ".join(score[name] for name in ("scorer", "rubric", "rater") if name in score)


def _step_lines(step: Mapping[str, Any]) -> Iterator[str]:
    if step.get("thought"):
        yield from _texts("thought: ", step["thought"])
    if step.get("message"):
        yield from _texts("", step["message"])
    for action in step.get("actions", ()):
        arguments = action.get("raw_args") if action.get("args") is None else action["args"]
        written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        yield from _texts("call: ", f"{action['tool']} {written}")
    for observation in step.get("observations", ()):
        content = observation.get("content", "")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        yield from _texts("error: " if observation.get("is_error") else "result: ", text)


def _texts(title: str, text: str) -> Iterator[str]:
    """Yield the lines of a text, indented, the first one after its title."""
    first, *rest = str(text).splitlines() or [""]
    yield f"  {title}{first}"
    yield from (f"  {line}" for line in rest)
