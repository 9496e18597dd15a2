"""knowlyr's command lines with their documented flags, each carried out as commands of this program.

A line that is carried out is printed first, as the command of this program that does the same.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import typer

from quintain.cli.commands.foreign_lines import Flag, Steps, Values, command
from quintain.cli.session import Session
from quintain.environments.tasks.task_files import read_tasks
from quintain.errors import InvalidInput
from quintain.records.documents import read_document
from quintain.records.filters import TrajectoryFilter
from quintain.records.trajectory import Trajectory
from quintain.scoring.calibration.fitting import fit_all
from quintain.scoring.judges.rubrics import RUBRICS
from quintain.scoring.judges.rubrics import rubric as find_rubric
from quintain.tools.knowlyr import EXPORTED, dataset_name, with_task_texts
from quintain.tools.knowlyr_environments import environment_name
from quintain.tools.training.config_files import stated_folder

Framework: TypeAlias = Literal["openhands", "swe-agent", "sweagent", "crew"]


def _setting(flag: str, type: Any, name: str, off: Any = None) -> Flag:
    return Flag((flag,), type, ("--set", f"{name}={{}}"), off=off)


_OUTPUT = Flag(("-o", "--output"), Path)
_LOG = Flag(("LOG",), Path, required=True)
_FILE = Flag(("FILE",), Path, required=True)
_TRAJECTORIES = Flag(("-t", "--trajectories"), Path, required=True)
_FRAMEWORK = Flag(("-f", "--framework"), Framework, required=True)


def _train(method: str, *more: Flag) -> Callable[..., None]:
    """Return the command that trains by a method."""

    @command(
        Flag(("--config",), Path, ("--config", "{}")),
        Flag(("--train-file",), Path, ("--dataset", "{}")),
        Flag(("--model",), str, ("--model", "{}")),
        Flag(("--output-dir",), Path),
        _setting("--epochs", float, "epochs"),
        _setting("--batch-size", int, "batch_size"),
        _setting("--lr", float, "learning_rate"),
        _setting("--max-length", int, "max_length"),
        _setting("--lora/--no-lora", bool, "use_lora"),
        _setting("--bf16/--no-bf16", bool, "bf16"),
        _setting("--gradient-checkpointing/--no-gradient-checkpointing", bool, "gradient_checkpointing"),
        _setting("--wandb-project", str, "wandb_project"),
        Flag(("--seed",), int, ("--seed", "{}")),
        *more,
    )
    def train(values: Values) -> Steps:
        """Train, and leave the model in OUTPUT_DIR/final."""
        config: Path | None = values["config"]
        stated = stated_folder(read_document(config)) if config is not None else None
        folder = Path(values["output_dir"] or stated or Path("output", method))
        yield ["train", "--method", method, *values["words"], "--output-dir", str(folder / "final")]

    return train


sft = _train("sft")
dpo = _train("dpo", _setting("--beta", float, "beta"))
grpo = _train(
    "grpo",
    _setting("--group-size", int, "group_size"),
    _setting("--clip-epsilon", float, "clip_epsilon"),
    _setting("--kl-coef", float, "kl_coef"),
)


@command(
    Flag(("--model",), str, required=True),
    Flag(("--eval-file",), Path, required=True),
    _OUTPUT,
    Flag(("--max-length",), int),
    Flag(("--batch-size",), int),
)
def evaluate_file(values: Values) -> Steps:
    """Measure loss and next actions on the rows of a file."""
    name = dataset_name(values["eval_file"], "eval")
    yield ["export", "sft", name, "--rows", str(values["eval_file"]), "--validation-share", "0"]
    yield ["evaluate", values["model"], "--dataset", name, "--split", "train", *_report(values)]


def _reader(values: Values) -> list[str]:
    """Return the reader of a framework; those of OpenHands and SWE-agent, which have several, are detected."""
    return ["--format", "crew"] if values["framework"] == "crew" else []


@command(_LOG, _FRAMEWORK, _OUTPUT)
def convert(values: Values) -> Steps:
    """Import a log, and write its runs to the output file."""
    log: Path = values["log"]
    tag = dataset_name(log, "runs")
    yield ["import", str(log), *_reader(values), "--tag", tag]
    if (output := values["output"]) is not None:
        _write_runs(output, tag, values["home"])


@command(_LOG, Flag(("-f", "--framework"), Framework))
def validate(values: Values) -> Steps:
    """Read a log without storing anything."""
    yield ["import", str(values["log"]), "--dry-run", *_reader(values)]


@command(_LOG, _FRAMEWORK, _OUTPUT, Flag(("-p", "--pattern"), str), Flag(("--save/--no-save",), bool))
def process(values: Values) -> Steps:
    """Import the logs of a file or folder into the store, which takes the place of output folders."""
    log, pattern = values["log"], values["pattern"]
    try:
        files = sorted(log.glob(pattern)) if pattern and log.is_dir() else [log]
    except (ValueError, NotImplementedError):
        raise InvalidInput(f"--pattern: expected a pattern like *.jsonl, got {pattern!r}; correct it") from None
    for file in files:
        yield ["import", str(file), *_reader(values)]


@command(
    _FILE,
    _OUTPUT,
    Flag(("-d", "--domain"), str, ("--profile", "{}")),
    Flag(("--rule-weight",), float),
    Flag(("--model-weight",), float),
    Flag(("-m", "--model")),
    Flag(("-p", "--provider")),
)
def score(values: Values) -> Steps:
    """Score the runs of a file by knowlyr's formula; a model is a profile of endpoints.toml, which has its provider."""
    tag = dataset_name(values["file"], "runs")
    yield ["import", str(values["file"]), "--tag", tag]
    if (model := values["model"]) is not None:
        yield ["score", "judge", "--judge", f"endpoint:{model}", "--tag", tag, *values["words"]]
    as_json = ["--json"] if values["output"] is not None else []
    yield ["score", "knowlyr", "--tag", tag, *values["words"], *as_json]


@command(_FILE, Flag(("--min-margin",), float))
def preferences(values: Values) -> Steps:
    """Import the runs of a file and derive preferences between them."""
    tag = dataset_name(values["file"], "runs")
    yield ["import", str(values["file"]), "--tag", tag]
    margin = values["min_margin"]
    yield ["prefer", "mine", "--tag", tag, *([] if margin is None else ["--margin", str(margin)])]


@command(Flag(("FILES",), list[Path], required=True))
def compare(values: Values) -> Steps:
    """Score the runs of each file by knowlyr's formula, one file after the other."""
    for file in values["files"]:
        tag = dataset_name(file, "runs")
        yield ["import", str(file), "--tag", tag]
        yield ["score", "knowlyr", "--tag", tag]


@command(_FILE, _OUTPUT)
def calibrate(values: Values) -> None:
    """Fit the map from scores to people's, and print its held-out error."""
    document = read_document(values["file"])
    scores, labels = document.get("reward_scores"), document.get("human_scores")
    if not isinstance(scores, list) or not isinstance(labels, list):
        raise InvalidInput(
            f"expected lists reward_scores and human_scores in {values['file']}, got {', '.join(document) or 'nothing'}; write "
            "both, in the same order"
        )
    fitted = fit_all(scores, labels, ["*"] * len(scores))
    found = {"n": len(scores), "error_before": fitted.error_before, "error_after": fitted.error_after}
    _print_json({**found, "map": fitted.domains["*"].map.model_dump(), "warnings": fitted.warnings}, values["output"])


@command(Flag(("--domain",)))
def rubrics(values: Values) -> None:
    """Print the rubrics, or that of a domain."""
    wanted = values["domain"]
    _print_json([one.model_dump() for one in ([find_rubric(wanted)] if wanted else RUBRICS.values())])


@command()
def schema(values: Values) -> None:
    """Print the JSON schema of a run, as record_trajectory takes it."""
    _print_json(Trajectory.model_json_schema())


@command(
    Flag(("SOURCE",), Path, required=True),
    Flag(("--language",)),
    Flag(("--difficulty",)),
    Flag(("--type",)),
    Flag(("--limit",), int),
)
def tasks(values: Values) -> None:
    """Print the tasks of a file that have these values, one a line."""
    wanted = {name: values[name] for name in ("language", "difficulty", "type") if values[name] is not None}
    tasks = read_tasks(values["source"]).tasks
    shown = [task for task in tasks if wanted.items() <= {**task.metadata, **task.model_dump()}.items()]
    for task in shown[: values["limit"]]:
        typer.echo(json.dumps(task.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False))


@command(
    Flag(("TASKS",), Path, required=True),
    Flag(("-m", "--model"), str, required=True),
    Flag(("-f", "--framework"), Literal["custom", "openhands", "sweagent"]),
    Flag(("--max-steps",), int, ("--max-turns", "{}")),
    Flag(("-w", "--workers"), int, ("--actors", "{}")),
    Flag(("--resume",), bool),
    _OUTPUT,
)
def run(values: Values) -> Steps:
    """Let a model play the tasks of a file; its runs go to the store, or to a file."""
    if (framework := values["framework"]) not in (None, "custom"):
        raise InvalidInput(
            f"expected the framework custom, got {framework}, whose programs are not part of this one; run it on the tasks "
            "itself, and read its logs by quintain import"
        )
    tag, played = (
        dataset_name(values["tasks"], "runs"),
        Counter(task.metadata["split"] for task in read_tasks(values["tasks"]).tasks),
    )
    where = f"quintain/tasks?file={values['tasks'].absolute()}&open=true"
    for split, count in sorted(played.items()):
        words = ["collect", values["model"], "--environment", where, "--split", split, "--n-tasks", str(count)]
        yield [*words, "--tag", tag, *values["words"]]
    if values["output"] is not None:
        _write_runs(values["output"], tag, values["home"])


@command(Flag(("FOLDER",), Path))
def status(values: Values) -> Steps:
    """List the jobs, in which the progress is, whatever the folder."""
    yield ["jobs", "list"]


@command(
    Flag(("READER",), Literal["crew"], required=True),
    Flag(("--source",), Path, required=True),
    Flag(("--reset",), bool),
)
def ingest(values: Values) -> Steps:
    """Import the sessions of a file or folder; those that are stored already are left out."""
    yield ["import", str(values["source"]), "--format", "crew", *(["--again"] if values["reset"] else [])]


def _pushed(values: Values) -> Steps:
    """Push good runs as a dataset with a card to a repository of the Hub that the operator allows."""
    source, repository = values["trajectories"], values["repo_id"]
    if repository is None:
        raise InvalidInput("expected --repo-id OWNER/NAME, got none; name the repository of the Hub")
    words = ["export", "sft", dataset_name(source, "hub"), "--rows", str(source), "--validation-share", "0"]
    out = [] if values.get("output") is None else ["--format", "hub", "--out", str(values["output"])]
    yield [*words, *out, "--push-to", f"hub:{repository}"]


@command(
    _TRAJECTORIES,
    Flag(("--repo-id",), required=True),
    Flag(("--generate-card/--no-generate-card",), bool),
)
def publish(values: Values) -> Steps:
    """Push good runs as a dataset with a card to a repository of the Hub that the operator allows."""
    return _pushed(values)


@command(
    Flag(("--format",), Literal["sft", "dpo", "grpo", "benchmark", "huggingface"], required=True),
    _TRAJECTORIES,
    Flag(("-p", "--preferences"), Path),
    Flag(("-o", "--output"), Path, required=True),
    Flag(("--repo-id",)),
)
def export(values: Values) -> Steps:
    """Export a file of trajectories, or of preferences between them, as rows for training."""
    kind, source, preferences = values["format"], values["trajectories"], values["preferences"]
    if kind == "huggingface":
        yield from _pushed(values)
        return
    with tempfile.TemporaryDirectory(prefix="knowlyr-") as aside:
        rows = source
        if kind == "dpo" and preferences is not None:
            rows = with_task_texts(preferences, source, Path(aside, preferences.name))
        out = Path(aside, "out")
        words = ["export", kind, dataset_name(rows, kind), "--rows", str(rows), "--format", "knowlyr"]
        yield [*words, *([] if kind == "benchmark" else ["--validation-share", "0"]), "--out", str(out)]
        values["output"].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / EXPORTED[kind], values["output"])


@command(
    Flag(("--env",), str, required=True),
    Flag(("--model",), str, required=True),
    Flag(("-n", "--n-episodes"), int, ("--n-tasks", "{}")),
    Flag(("--max-steps",), int, ("--max-turns", "{}")),
    Flag(("--system-prompt",)),
    Flag(("--domain",)),
    _OUTPUT,
)
def evaluate(values: Values) -> Steps:
    """Measure a model in an environment, under a system prompt where one is given."""
    agent, prompt = values["model"], values["system_prompt"]
    if prompt is not None:
        yield ["register", "knowlyr-agent", "--model", agent, "--system-prompt", prompt]
        agent = "knowlyr-agent"
    where = ["--environment", environment_name(values["env"])]
    yield ["evaluate", agent, *where, *values["words"], *_report(values)]


@command(
    Flag(("--model",), str, required=True),
    Flag(("--env",), str, required=True),
    Flag(("-n", "--n-iterations"), int, ("--iterations", "{}")),
    _setting("--n-episodes", int, "tasks_per_iteration"),
    _setting("--max-steps", int, "max_turns"),
    _setting("--patience", int, "patience", off=0),
    _setting("--eval-episodes", int, "evaluation_tasks", off=0),
    Flag(("--domain",)),
)
def online(values: Values) -> Steps:
    """Train a model on what it plays, round after round."""
    where = ["--environment", environment_name(values["env"])]
    yield ["evolve", values["model"], *where, *values["words"]]


def _report(values: Values) -> list[str]:
    return [] if values["output"] is None else ["--report", str(values["output"])]


def _print_json(found: Any, path: Path | None = None) -> None:
    text = json.dumps(found, indent=2, ensure_ascii=False)
    if path is None:
        typer.echo(text)
    else:
        path.write_text(f"{text}\n", encoding="utf-8")


def _write_runs(path: Path, tag: str, home: Path | None) -> None:
    """Write the runs with a tag as JSON lines, which `import` and `knowlyr-reward score` read."""
    with Session(home) as session, path.open("w", encoding="utf-8") as file:
        for run in session.services().store.trajectories.iterate(TrajectoryFilter(tags=(tag,))):
            file.write(f"{run.model_dump_json(exclude_defaults=True)}\n")
