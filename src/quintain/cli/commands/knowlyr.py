"""knowlyr's command lines with their documented flags, each carried out as commands of this program.

A line that is carried out is printed first, as the command of this program that does the same.
"""

from __future__ import annotations

import inspect
import json
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from quintain.cli.main import HomeOption, app
from quintain.cli.session import Session
from quintain.errors import InvalidInput
from quintain.records.documents import read_document
from quintain.records.filters import TrajectoryFilter
from quintain.tools.knowlyr import EXPORTED, dataset_name, with_task_texts
from quintain.tools.knowlyr_environments import environment_name

Framework: TypeAlias = Literal["openhands", "swe-agent", "sweagent", "crew"]


@dataclass(frozen=True)
class Flag:
    """A flag or argument as it is documented, and the words that it becomes."""

    declared: tuple[str, ...]
    """`-o`, `--output`; a name in capitals is positional."""
    type: Any = str
    becomes: tuple[str, ...] = ()
    """Our words, with {} for the value; empty: the line's function reads it."""
    required: bool = False

    @property
    def key(self) -> str:
        """Its name among the values."""
        return self.declared[-1].split("/")[0].lstrip("-").lower().replace("-", "_")

    def parameter(self) -> inspect.Parameter:
        """Return the parameter that typer reads."""
        help = f"As {shlex.join(self.becomes).format(self.declared[-1].lstrip('-').upper())}." if self.becomes else None
        positional = self.declared[0].isupper()
        info: Any = typer.Argument(help=help) if positional else typer.Option(*self.declared, help=help)
        parsed: Any = self.type if self.required else self.type | None
        annotation: Any = Annotated[parsed, info]
        default = inspect.Parameter.empty if self.required else None
        return inspect.Parameter(self.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def words(self, value: Any) -> list[str]:
        """Return our words for a value."""
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        return [] if value is None else [word.replace("{}", text) for word in self.becomes]


def _setting(flag: str, type: Any, name: str) -> Flag:
    return Flag((flag,), type, ("--set", f"{name}={{}}"))


_MODEL = Flag(("--model",), str, ("--model", "{}"))
_OUTPUT = Flag(("-o", "--output"), Path)
_OUTPUT_DIR = Flag(("--output-dir",), Path)
_TRAIN = (
    Flag(("--config",), Path, ("--config", "{}")),
    Flag(("--train-file",), Path, ("--dataset", "{}")),
    _MODEL,
    _OUTPUT_DIR,
    _setting("--epochs", float, "epochs"),
    _setting("--batch-size", int, "batch_size"),
    _setting("--lr", float, "learning_rate"),
    _setting("--max-length", int, "max_length"),
    _setting("--lora/--no-lora", bool, "use_lora"),
    _setting("--bf16/--no-bf16", bool, "bf16"),
    _setting("--gradient-checkpointing/--no-gradient-checkpointing", bool, "gradient_checkpointing"),
    Flag(("--seed",), int, ("--seed", "{}")),
)
_LOG = Flag(("LOG",), Path, required=True)
_FRAMEWORK = Flag(("-f", "--framework"), Framework, required=True)

Values = Mapping[str, Any]
Steps = Iterator[Sequence[str]]


def _train(method: str, *more: Flag) -> Callable[..., None]:
    """Return the command that trains by a method and leaves the model in OUTPUT_DIR/final."""
    flags = (*_TRAIN, *more)

    def steps(values: Values) -> Steps:
        config: Path | None = values["config"]
        stated = read_document(config).get("output_dir") if config is not None else None
        folder = Path(values["output_dir"] or stated or Path("output", method))
        yield ["train", "--method", method, *_words(flags, values), "--output-dir", str(folder / "final")]

    return _command(flags, steps)


def _eval_steps(values: Values) -> Steps:
    """Measure loss and next actions on the rows of a file."""
    name = dataset_name(values["eval_file"], "eval")
    yield ["export", "sft", name, "--rows", str(values["eval_file"]), "--validation-share", "0"]
    yield ["evaluate", values["model"], "--dataset", name, "--split", "train", *_report(values)]


def _reader(values: Values) -> list[str]:
    """Return the reader of a framework; those of OpenHands and SWE-agent, which have several, are detected."""
    return ["--format", "crew"] if values["framework"] == "crew" else []


def _convert_steps(values: Values) -> Steps:
    log: Path = values["log"]
    tag = dataset_name(log, "runs")
    yield ["import", str(log), *_reader(values), "--tag", tag]
    if (output := values["output"]) is not None:
        _write_runs(output, tag, values["home"])


def _validate_steps(values: Values) -> Steps:
    yield ["import", str(values["log"]), "--dry-run", *_reader(values)]


def _folder_steps(values: Values) -> Steps:
    """Import the logs of a file or folder into the store, which takes the place of output folders."""
    log, pattern = values["log"], values["pattern"]
    try:
        files = sorted(log.glob(pattern)) if pattern and log.is_dir() else [log]
    except (ValueError, NotImplementedError):
        raise InvalidInput(f"--pattern: expected a pattern like *.jsonl, got {pattern!r}; correct it") from None
    for file in files:
        yield ["import", str(file), *_reader(values)]


_SCORE = (
    Flag(("FILE",), Path, required=True),
    _OUTPUT,
    Flag(("-d", "--domain"), str, ("--profile", "{}")),
    Flag(("--rule-weight",), float),
    Flag(("--model-weight",), float),
)


def _score_steps(values: Values) -> Steps:
    """Score the runs of a file by knowlyr's formula."""
    tag = dataset_name(values["file"], "runs")
    yield ["import", str(values["file"]), "--tag", tag]
    as_json = ["--json"] if values["output"] is not None else []
    yield ["score", "knowlyr", "--tag", tag, *_words(_SCORE, values), *as_json]


def _preference_steps(values: Values) -> Steps:
    tag = dataset_name(values["file"], "runs")
    yield ["import", str(values["file"]), "--tag", tag]
    margin = values["min_margin"]
    yield ["prefer", "mine", "--tag", tag, *([] if margin is None else ["--margin", str(margin)])]


def _export_steps(values: Values) -> Steps:
    """Export a file of trajectories, or of preferences between them, as rows for training."""
    kind, source, preferences = values["format"], values["trajectories"], values["preferences"]
    if kind == "huggingface":
        raise InvalidInput(
            "expected --format sft, dpo, grpo or benchmark, got huggingface; export a dataset with quintain export and upload "
            "its folder with the Hub's own client"
        )
    with tempfile.TemporaryDirectory(prefix="knowlyr-") as aside:
        rows = source
        if kind == "dpo" and preferences is not None:
            rows = with_task_texts(preferences, source, Path(aside, preferences.name))
        out = Path(aside, "out")
        words = ["export", kind, dataset_name(rows, kind), "--rows", str(rows), "--format", "knowlyr"]
        yield [*words, *([] if kind == "benchmark" else ["--validation-share", "0"]), "--out", str(out)]
        values["output"].parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(out / EXPORTED[kind], values["output"])


_EVALUATE = (
    Flag(("--env",), str, required=True),
    Flag(("--model",), str, required=True),
    Flag(("-n", "--n-episodes"), int, ("--n-tasks", "{}")),
    Flag(("--max-steps",), int, ("--max-turns", "{}")),
    Flag(("--system-prompt",)),
    Flag(("--domain",)),
    _OUTPUT,
)


def _evaluate_steps(values: Values) -> Steps:
    agent, prompt = values["model"], values["system_prompt"]
    if prompt is not None:
        yield ["register", "knowlyr-agent", "--model", agent, "--system-prompt", prompt]
        agent = "knowlyr-agent"
    where = ["--environment", environment_name(values["env"])]
    yield ["evaluate", agent, *where, *_words(_EVALUATE, values), *_report(values)]


_ONLINE = (
    Flag(("--model",), str, required=True),
    Flag(("--env",), str, required=True),
    Flag(("-n", "--n-iterations"), int, ("--iterations", "{}")),
    _setting("--n-episodes", int, "tasks_per_iteration"),
    _setting("--max-steps", int, "max_turns"),
    _setting("--patience", int, "patience"),
    _setting("--eval-episodes", int, "evaluation_tasks"),
    Flag(("--domain",)),
)


def _online_steps(values: Values) -> Steps:
    where = ["--environment", environment_name(values["env"])]
    yield ["evolve", values["model"], *where, *_words(_ONLINE, values)]


def _report(values: Values) -> list[str]:
    return [] if values["output"] is None else ["--report", str(values["output"])]


def _words(flags: Sequence[Flag], values: Values) -> list[str]:
    return [word for flag in flags for word in flag.words(values[flag.key])]


def _write_runs(path: Path, tag: str, home: Path | None) -> None:
    """Write the runs with a tag as JSON lines, which `import` and `knowlyr-reward score` read."""
    with Session(home) as session, path.open("w", encoding="utf-8") as file:
        for run in session.services().store.trajectories.iterate(TrajectoryFilter(tags=(tag,))):
            file.write(f"{run.model_dump_json(exclude_defaults=True)}\n")


def _command(flags: Sequence[Flag], steps: Callable[[Values], Steps]) -> Callable[..., None]:
    """Return a command with these flags that carries out its steps until one fails."""

    def run(**values: Any) -> None:
        with Session(None):
            try:
                status = next((failed for words in steps(values) if (failed := _carry_out(words, values))), 0)
            except OSError as error:
                raise InvalidInput(f"{error.filename}: {error.strerror}; name a file that can be written") from None
        raise typer.Exit(status)

    home = inspect.Parameter("home", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=HomeOption)
    parameters = [*(flag.parameter() for flag in flags), home]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = f"{inspect.getdoc(steps) or 'Carry out the same command of this program.'}"
    return run


def _carry_out(words: Sequence[str], values: Values) -> int:
    """Run a command of this program and return its exit status; `--json` goes to the line's output file."""
    typer.echo(f"quintain {shlex.join(words)}", err=True)
    home = ["--home", str(values["home"])] if values["home"] is not None else []
    target: Path | None = values.get("output") if "--json" in words else None
    with ExitStack() as stack:
        if target is not None:
            stack.enter_context(redirect_stdout(stack.enter_context(target.open("w", encoding="utf-8"))))
        status = typer.main.get_command(app).main([*words, *home], "quintain", standalone_mode=False)
    return int(status or 0)


sft = _train("sft")
dpo = _train("dpo", _setting("--beta", float, "beta"))
grpo = _train(
    "grpo",
    _setting("--group-size", int, "group_size"),
    _setting("--clip-epsilon", float, "clip_epsilon"),
    _setting("--kl-coef", float, "kl_coef"),
)
evaluate_file = _command(
    (
        Flag(("--model",), str, required=True),
        Flag(("--eval-file",), Path, required=True),
        _OUTPUT,
        Flag(("--max-length",), int),
        Flag(("--batch-size",), int),
    ),
    _eval_steps,
)
convert = _command((_LOG, _FRAMEWORK, _OUTPUT), _convert_steps)
validate = _command((_LOG, Flag(("-f", "--framework"), Framework)), _validate_steps)
process = _command(
    (_LOG, _FRAMEWORK, _OUTPUT, Flag(("-p", "--pattern"), str), Flag(("--save/--no-save",), bool)), _folder_steps
)
score = _command(_SCORE, _score_steps)
preferences = _command(
    (Flag(("FILE",), Path, required=True), Flag(("--min-margin",), float)),
    _preference_steps,
)
export = _command(
    (
        Flag(("--format",), Literal["sft", "dpo", "grpo", "benchmark", "huggingface"], required=True),
        Flag(("-t", "--trajectories"), Path, required=True),
        Flag(("-p", "--preferences"), Path),
        Flag(("-o", "--output"), Path, required=True),
    ),
    _export_steps,
)
evaluate = _command(_EVALUATE, _evaluate_steps)
online = _command(_ONLINE, _online_steps)
