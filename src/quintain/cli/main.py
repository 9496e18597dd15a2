"""`quintain`: the commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from quintain.cli import learning, measuring
from quintain.cli.options import HomeOption

app = typer.Typer(
    help="Train agents by conversation: an MCP server and its tools.", no_args_is_help=True, add_completion=False
)


@app.callback()
def check_settings() -> None:
    """Stop before any work where a variable of the environment is wrong, with one line that says what is valid."""
    from quintain.errors import InvalidInput
    from quintain.settings import read_settings

    try:
        read_settings()
    except InvalidInput as error:
        typer.echo(error, err=True)
        raise typer.Exit(2) from None


@app.command()
def demo(
    fast: Annotated[bool, typer.Option("--fast", help="The short form: fewer episodes and tasks.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of tasks, sampling and training.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")] = None,
    out: Annotated[Path, typer.Option(help="Folder that receives the demo's home folder and its picture.")] = Path(
        "demo-out"
    ),
) -> None:
    """Watch an agent get better: collect, score, export, train, evaluate, compare, all through a real MCP client."""
    from quintain.cli.demo import run_demo

    raise typer.Exit(run_demo(fast=fast, seed=seed, json_file=json_file, out=out))


@app.command()
def serve(
    transport: Annotated[str, typer.Option(help="stdio, or http on this machine's loopback address.")] = "stdio",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port for http.")] = 8765,
    toolsets: Annotated[
        str | None, typer.Option(help="Comma-separated: data, label, train, evaluate. Default: all.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer only tools that change nothing.")] = False,
    home: HomeOption = None,
) -> None:
    """Serve the tools over MCP."""
    from quintain.cli.serve import run_server

    raise typer.Exit(run_server(transport=transport, port=port, toolsets=toolsets, read_only=read_only, home=home))


app.command()(learning.plan)
app.command()(learning.train)
app.command()(learning.evolve)
app.command("export-agent")(learning.export_agent)


@app.command()
def record(
    file: Annotated[
        str, typer.Argument(help="JSON file with chat messages or a whole trajectory; - for standard input.")
    ],
    task: Annotated[str | None, typer.Option(help="What the agent was asked.")] = None,
    agent: Annotated[str | None, typer.Option(help="Who acted.")] = None,
    outcome: Annotated[
        str | None, typer.Option(help="success, failure, error, truncated or unknown; leave out if you do not know.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Label to find it by; repeat.")] = None,
    home: HomeOption = None,
) -> None:
    """Store one run of an agent."""
    from quintain.cli.record import run_record

    raise typer.Exit(run_record(file, task=task, agent=agent, outcome=outcome, tags=tag or [], home=home))


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="File or folder of agent logs.")],
    format: Annotated[str, typer.Option(help="A log format by name; auto: detected file by file.")] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would come in.")] = False,
    tag: Annotated[list[str] | None, typer.Option(help="Label to find these runs by; repeat.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Also read files that have not changed.")] = False,
    no_redact: Annotated[bool, typer.Option("--no-redact", help="Keep secrets in the stored runs.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Read agent logs into runs: redacted, each once, with what was left out and why."""
    from quintain.cli.imports import run_import

    raise typer.Exit(
        run_import(
            path,
            format=format,
            dry_run=dry_run,
            tags=tag or [],
            again=again,
            redact=not no_redact,
            json_out=json_out,
            home=home,
        )
    )


@app.command()
def calibrate(
    scorer: Annotated[str, typer.Argument(help="Whose stored scores to map, e.g. judge.")],
    labels: Annotated[str, typer.Option(help="Whose stored scores are the truth.")] = "people",
    method: Annotated[
        Literal["auto", "isotonic", "platt"], typer.Option(help="auto: what cross-validates best.")
    ] = "auto",
    one_map: Annotated[bool, typer.Option("--one-map", help="No maps by domain.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Also write the reliability diagram (PNG) to this file.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Fit a scorer's stored scores to people's labels, and see the error on labels that it was not fitted to."""
    from quintain.cli.calibrate import Asked, run_calibrate

    asked = Asked(scorer, labels, method, not one_map)
    raise typer.Exit(run_calibrate(asked, picture=picture, json_out=json_out, home=home))


@app.command()
def score(
    scorer: Annotated[str, typer.Argument(help="A scorer, or a mix such as outcome=0.6,rules=0.4.")],
    everything: Annotated[bool, typer.Option("--all", help="Take every stored run.")] = False,
    agent: Annotated[str | None, typer.Option(help="Runs of this agent.")] = None,
    environment: Annotated[str | None, typer.Option(help="Runs in this environment.")] = None,
    task_type: Annotated[str | None, typer.Option(help="Runs on tasks of this type.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Runs with this label; repeat.")] = None,
    text: Annotated[str | None, typer.Option(help="Runs that hold this text.")] = None,
    profile: Annotated[str | None, typer.Option(help="Domain profile: a name or a JSON file.")] = None,
    judge: Annotated[str | None, typer.Option(help="With judge: endpoint:NAME or an agent; starts a job.")] = None,
    rubric: Annotated[str | None, typer.Option(help="For --judge: a name, or a JSON or YAML file.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Apply no calibration.")] = False,
    audit: Annotated[
        bool, typer.Option("--audit", help="Look for reward hacking; exit status 1 where flagged.")
    ] = False,
    lower_bound: Annotated[bool, typer.Option("--lower-bound", help="Of a mix: mean less spread.")] = False,
    cap: Annotated[float | None, typer.Option(help="Most that counts, above 0 to 1.", min=1e-9, max=1)] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Score runs from 0 to 1 and see what could not be scored, and why."""
    from quintain.cli.score import Asked, run_score

    chosen = {"agent": agent, "environment": environment, "task_type": task_type, "tags": tag, "text": text}
    combine = "lower_bound" if lower_bound else "mean"
    options = {"profile": profile, "judge": judge, "rubric": rubric, "calibrate": not raw, "audit": audit, "cap": cap}
    asked = Asked(scorer, everything, chosen, {**options, "combine": combine})
    raise typer.Exit(run_score(asked, json_out=json_out, home=home))


@app.command()
def export(
    kind: Annotated[str, typer.Argument(help="sft, dpo, kto, grpo, reward, prm, benchmark or text.")],
    name: Annotated[str, typer.Argument(help="Name of the dataset.")],
    format: Annotated[
        str,
        typer.Option(
            help="quintain, trl, trl_prompt_completion, llamafactory, axolotl, openai, verl, knowlyr, atif, hf_sts or hub."
        ),
    ] = "quintain",
    out: Annotated[Path | None, typer.Option(help="Also copy the written folder here; must not exist.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Take every stored run.")] = False,
    agent: Annotated[str | None, typer.Option(help="Runs of this agent.")] = None,
    environment: Annotated[str | None, typer.Option(help="Runs in this environment.")] = None,
    task_type: Annotated[str | None, typer.Option(help="Runs on tasks of this type.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Runs with this label; repeat.")] = None,
    text: Annotated[str | None, typer.Option(help="Runs that hold this text.")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Outcome to keep: success, failure, error, truncated, unknown; repeat. sft: success."),
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Ready-made rows instead: a file, folder or Hub name.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="For --rows: NAME=COLUMN, e.g. prompt=question.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Whose stored scores value the runs.")] = None,
    min_score: Annotated[float | None, typer.Option(help="Keep from this score on.")] = None,
    min_reward: Annotated[float | None, typer.Option(help="Keep from this reward on.")] = None,
    near_duplicates: Annotated[float | None, typer.Option(help="Drop runs this similar, e.g. 0.9.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="A seeded sample of so many rows.")] = None,
    source_model: Annotated[list[str] | None, typer.Option(help="Glob of models to keep, or !glob; repeat.")] = None,
    validation_share: Annotated[float, typer.Option(help="Share of the tasks held back for validation.")] = 0.0,
    pairs: Annotated[
        str | None, typer.Option(help="dpo, reward: mined, recorded, recorded:mined, person, assistant, ...")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of split and sample.")] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Freeze chosen runs into a dataset, in our own format or another trainer's too; all that is left out has a reason."""
    from quintain.cli.export import Asked, run_export

    chosen = {"agent": agent, "environment": environment, "task_type": task_type, "tags": tag, "text": text}
    bounds = {"min_reward": min_reward, "near_duplicates": near_duplicates, "max_rows": max_rows}
    options = {
        "path": rows,
        "columns": column,
        "scorer": scorer,
        "min_score": min_score,
        "outcomes": keep,
        "pairs": pairs,
        "validation_share": validation_share,
        "seed": seed,
        "format": format,
    }
    curation = {**bounds, "source_models": source_model}
    asked = Asked(kind, name, everything, chosen, curation, options)
    raise typer.Exit(run_export(asked, out=out, json_out=json_out, home=home))


@app.command()
def judge(
    answers: Annotated[
        str | None, typer.Argument(help='JSON file of answers, {"batch_id", "scores"}; - for standard input.')
    ] = None,
    judge: Annotated[
        Literal["person", "assistant"], typer.Option(help="Who judges; person: asked here, at the terminal.")
    ] = "person",
    mode: Annotated[
        Literal["score", "steps", "pairwise", "group"],
        typer.Option(help="Whole runs, steps, pairs or groups of a task."),
    ] = "score",
    rubric: Annotated[str | None, typer.Option(help="Name of a rubric, or a JSON or YAML file.")] = None,
    rater: Annotated[str | None, typer.Option(help="Your name, where several people judge.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="Items.")] = 5,
    agent: Annotated[str | None, typer.Option(help="Runs of this agent.")] = None,
    environment: Annotated[str | None, typer.Option(help="Runs in this environment.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Runs with this label; repeat.")] = None,
    text: Annotated[str | None, typer.Option(help="Runs that hold this text.")] = None,
    agreement: Annotated[bool, typer.Option("--agreement", help="Show how far the raters agree.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the choice of runs.")] = 0,
    json_out: Annotated[bool, typer.Option("--json", help="Ask nothing; print the batch or result as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Judge runs at the terminal, or give out a batch and take its answers as files."""
    from quintain.cli.judge import Asked, run_judge

    chosen = {"agent": agent, "environment": environment, "tags": tag, "text": text}
    asked = Asked(answers, judge, mode, rubric, rater, limit, seed, chosen, agreement)
    raise typer.Exit(run_judge(asked, json_out=json_out, home=home))


@app.command()
def prefer(
    action: Annotated[
        Literal["mine", "imported", "record", "list"],
        typer.Argument(
            help="mine: from values; imported: pairs of imported logs; record: a file's; list: what is stored."
        ),
    ],
    file: Annotated[Path | None, typer.Argument(help="record: JSONL, {a, b, better} or {chosen, rejected}.")] = None,
    source: Annotated[Literal["person", "assistant"], typer.Option(help="record: whose word it is.")] = "person",
    everything: Annotated[bool, typer.Option("--all", help="Take every stored run.")] = False,
    agent: Annotated[str | None, typer.Option(help="Runs of this agent.")] = None,
    environment: Annotated[str | None, typer.Option(help="Runs in this environment.")] = None,
    task_type: Annotated[str | None, typer.Option(help="Runs on tasks of this type.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Runs with this label; repeat.")] = None,
    text: Annotated[str | None, typer.Option(help="Runs that hold this text.")] = None,
    scorer: Annotated[str | None, typer.Option(help="mine: whose stored scores; default: outcomes.")] = None,
    mode: Annotated[
        str | None, typer.Option(help="mine: outside_in (default), adjacent, all_pairs, best_worst or forks.")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="mine: better by more than this.")] = None,
    max_pairs: Annotated[int | None, typer.Option(help="mine: at most so many of a task (100).")] = None,
    ties: Annotated[bool, typer.Option("--ties", help="mine: keep ties of equal values.")] = False,
    run: Annotated[str | None, typer.Option(help="list: only of this run.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="list: so many, newest first.")] = 20,
    json_out: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """Say which of two runs of a task is better: mined from their values, or as people said."""
    from quintain.cli.prefer import Asked, run_prefer

    chosen = {"agent": agent, "environment": environment, "task_type": task_type, "tags": tag, "text": text}
    mining = {"scorer": scorer, "mode": mode, "margin": margin, "max_pairs_per_task": max_pairs, "ties": ties or None}
    asked = Asked(action, file, source, everything, chosen, mining, run, limit)
    raise typer.Exit(run_prefer(asked, json_out=json_out, home=home))


@app.command()
def preview(
    dataset: Annotated[str, typer.Argument(help="Dataset id or name.")],
    model: Annotated[str, typer.Option(help="Agent, `starter` or model folder that would be trained.")],
    method: Annotated[str | None, typer.Option(help="How it would be trained; default: as usual for its kind.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Hyperparameter KEY=VALUE, e.g. max_length=2048; repeat.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, max=50, help="Rows to show; all are counted.")] = 3,
    show: Annotated[
        Literal["first", "longest", "shortest", "truncated", "random"],
        typer.Option(help="Which rows; truncated: those that lose most."),
    ] = "first",
    seed: Annotated[int, typer.Option(min=0, help="Of --show random.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Also write a page that needs no network to this file.")] = None,
    json_out: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False,
    home: HomeOption = None,
) -> None:
    """See a dataset as a model will: what is trained, what is masked, what falls off, and what to mend first."""
    from quintain.cli.preview import Asked, run_preview

    asked = Asked(dataset, model, method, settings or [], rows, show, seed)
    raise typer.Exit(run_preview(asked, html=html, as_json=json_out, home=home))


app.command()(measuring.evaluate)
app.command()(measuring.compare)


@app.command()
def lineage(
    id: Annotated[str, typer.Argument(help="A run, dataset, job, agent, evaluation, comparison, or a session id.")],
    depth: Annotated[int, typer.Option(min=1, max=50, help="Steps to follow in each direction.")] = 6,
    png: Annotated[Path | None, typer.Option(help="Also write a picture to this file.")] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Forget this run or session for good, after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before forgetting.")] = False,
    home: HomeOption = None,
) -> None:
    """See what made a thing and what it made; or forget a run and see all that it touched."""
    from quintain.cli.lineage import run_lineage

    raise typer.Exit(run_lineage(id, depth=depth, png=png, forget=forget, yes=yes, home=home))


@app.command()
def jobs(
    action: Annotated[
        Literal["list", "show", "watch", "cancel", "resume"], typer.Argument(help="What to do.")
    ] = "list",
    job_id: Annotated[str | None, typer.Argument(help="The job, for all but list.")] = None,
    home: HomeOption = None,
) -> None:
    """List jobs, or show, watch, cancel or resume one."""
    from quintain.cli.jobs import run_jobs

    raise typer.Exit(run_jobs(action, job_id, home))


@app.command()
def doctor(home: HomeOption = None) -> None:
    """Check this installation: folders, database, embedded model, and a real job from start to end."""
    from quintain.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(home))


@app.command()
def version() -> None:
    """Print the version."""
    from quintain import __version__

    typer.echo(__version__)


if __name__ == "__main__":
    app()
