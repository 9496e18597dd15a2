"""Every block of the pages is checked: commands and tool calls against the product, data by its parser, programs by running them.

How a block is treated is in its info string (see `scripts/run_page.py`). `blocks_in_all` counts them.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CalledProcessError, run
from typing import Any

import pytest
import typer
import yaml
from scripts.run_page import Block, blocks_of, run_shell

from jobs_in_process import in_process
from quintain.cli.main import app
from quintain.endpoints.profiles import read_profiles
from quintain.settings import Settings
from quintain.tools.catalog import CATALOG
from quintain.tools.invocation import arguments_model
from quintain.tools.training.methods import read_hyperparameters
from terminal import quintain

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page for page in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]}
BLOCKS = [(name, block) for name, page in PAGES.items() for block in blocks_of(page)]
BY_OTHER_TESTS = {
    "README.md": "cli/test_readme.py",
    "docs/how-to/add-a-launcher.md": "client/test_plugins.py",
    "docs/how-to/add-a-scorer.md": "client/test_plugins.py",
    "docs/how-to/add-an-exporter.md": "client/test_plugins.py",
    "docs/how-to/add-an-importer.md": "client/test_plugins.py",
    "docs/how-to/use-from-python.md": "client/test_python_client.py",
    "docs/tutorials/write-an-environment.md": "environments/test_documented.py",
}
"""Pages whose programs run in a test of their own, which expects more of them than that they end well."""
TOOLS = {spec.name: spec for spec in CATALOG}
CALLS = "calls of tools"


def _is_program(block: Block) -> bool:
    return block.language in ("sh", "python") and not (block.reason or block.file or block.title == CALLS)


def _programs(slow: bool) -> Iterator[Any]:
    for name in PAGES.keys() - BY_OTHER_TESTS.keys():
        blocks = [block for page, block in BLOCKS if page == name and _is_program(block)]
        if any(block.is_slow for block in blocks) == slow and blocks:
            yield pytest.param(name, id=name, marks=[pytest.mark.soak, pytest.mark.timeout(900)] if slow else [])


def test_every_block_states_its_language_and_how_it_is_tested() -> None:
    known = {"sh", "python", "toml", "json", "yaml", "text", "nginx"}
    assert [f"{page}:{block.line} {block.language!r}" for page, block in BLOCKS if block.language not in known] == []
    unknown = [
        f"{page}:{block.line} {block.title!r}"
        for page, block in BLOCKS
        if block.title and not (block.reason or block.is_slow or block.file or block.title == CALLS)
    ]
    assert unknown == [], "a title is a file's name, `calls of tools`, or starts with `needs` or `takes`"
    for page, test in BY_OTHER_TESTS.items():
        assert page in PAGES, test
        assert (ROOT / "tests" / test).is_file()


def _commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each line of a shell block, without settings of the environment before the command."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words:
            yield words


def test_every_command_of_a_page_is_one_that_the_program_takes() -> None:
    program, faults = typer.main.get_command(app), []
    for page, block in (one for one in BLOCKS if one[1].language == "sh"):
        for words in _commands(block.text):
            if words[0].rpartition("/")[2] != "quintain" or words[1:] == ["--install-completion"]:
                continue
            command, rest, context = program, words[1:], None
            try:
                while hasattr(command, "commands"):
                    context = typer.Context(command, parent=context)
                    _, command, rest = command.resolve_command(context, rest)
                command.make_context(command.name, list(rest), parent=context)
            except Exception as error:
                faults.append(f"{page}:{block.line} {shlex.join(words)}: {error}")
    assert faults == []


def test_every_tool_call_of_a_page_has_arguments_that_the_tool_takes() -> None:
    checked = 0
    for page, block in BLOCKS:
        if block.title != CALLS:
            continue
        for statement in ast.parse(block.text).body:
            call = getattr(statement, "value", None)
            assert isinstance(call, ast.Call), f"{page}:{block.line} has more than calls"
            assert isinstance(call.func, ast.Name)
            assert call.func.id in TOOLS, f"{page}:{block.line} calls {call.func.id}"
            left_out = {word.arg for word in call.keywords if ast.unparse(word.value) == "{...}"}
            values = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg not in left_out}
            model = arguments_model(TOOLS[call.func.id])
            assert left_out | values.keys() <= model.model_fields.keys(), f"{page}:{block.line}"
            model.model_validate({**values, **{str(name): {"tags": ["x"]} for name in left_out}})
            checked += 1
    assert checked


PARSERS = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}


def test_every_block_of_data_is_read_by_its_parser() -> None:
    faults = []
    for page, block in (one for one in BLOCKS if one[1].language in PARSERS):
        texts = block.text.splitlines() if block.language == "json" and "}\n{" in block.text else [block.text]
        for text in texts:
            try:
                PARSERS[block.language](text)
            except (ValueError, yaml.YAMLError) as error:
                faults.append(f"{page}:{block.line}: {error}")
    assert faults == []


def test_profiles_and_settings_of_trainings_in_a_page_are_read_by_the_product(tmp_path: Path) -> None:
    """A page shows parts of files: each profile of an endpoint, and the settings of each training, must be valid."""
    checked = Counter[str]()
    for page, block in BLOCKS:
        where = f"{page}:{block.line}"
        if block.language == "toml" and "base_url" in block.text:
            file = tmp_path / "endpoints.toml"
            file.write_text(block.text, encoding="utf-8")
            assert read_profiles(file), where
            checked["profile"] += 1
        document = yaml.safe_load(block.text) if block.language == "yaml" else {}
        for stage in document.get("stages", [document] if document else []):
            if stage["method"] != "evaluate":
                read_hyperparameters(stage["method"], stage.get("hyperparameters"))
                checked["training"] += 1
    assert set(checked) == {"profile", "training"}


def test_variables_extras_and_make_targets_of_a_page_exist() -> None:
    """Of blocks that cannot run here, too: what they name of this project is checked."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    compose = re.findall(r"QUINTAIN_[A-Z_]+", (ROOT / "compose.yaml").read_text(encoding="utf-8"))
    known = {f"QUINTAIN_{name.upper()}" for name in Settings.model_fields} | set(compose)
    for page, block in BLOCKS:
        where = f"{page}:{block.line}"
        assert set(re.findall(r"QUINTAIN_[A-Z_]+", block.text)) - known == set(), where
        named = [name for part in re.findall(r"quintain\[([\w,-]+)\]", block.text) for name in part.split(",")]
        assert set(named) - extras.keys() == set(), where
        for words in _commands(block.text) if block.language == "sh" else ():
            assert words[0] != "make" or set(words[1:]) <= set(targets), where


@pytest.fixture
def prepared(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user: logs of agents in the home directory, runs tagged `good`, a dataset, and agents by name."""
    user = tmp_path / "user"
    (user / ".claude").mkdir(parents=True)
    (user / ".claude" / "projects").symlink_to(ROOT / "examples" / "logs")
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("QUINTAIN_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    for words in (
        ["collect", "expert", "--environment", "quintain/inventory", "--n-tasks", "12", "--tag", "good"],
        ["import", str(ROOT / "examples" / "logs"), "--tag", "good"],
        ["export", "sft", "good-runs", "--tag", "good"],
        ["register", "clerk-sft", "--model", "starter"],
        ["register", "clerk-dpo", "--model", "starter"],
    ):
        with in_process():
            done = quintain(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path


def _follow(page: str, shell: Callable[[str], object]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in (block for name, block in BLOCKS if name == page):
        where = f"{page}:{block.line}"
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python" and _is_program(block):
            exec(compile(block.text, where, "exec"), names)
        elif block.language == "sh" and _is_program(block):
            shell(block.text)


def _in_this_process(script: str) -> None:
    """Run the commands of the program as at a terminal, without a process for each."""
    for words in _commands(script):
        words[:] = [str(Path(word).expanduser()) if word.startswith("~/") else word for word in words]
        done = (
            quintain(*words[1:]) if words[0] == "quintain" else run(words, capture_output=True, text=True, timeout=60)
        )
        assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("page", sorted(_programs(slow=False), key=lambda one: one.id or ""))
def test_the_programs_of_a_page_run(page: str) -> None:
    with in_process():
        _follow(page, _in_this_process)


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("page", sorted(_programs(slow=True), key=lambda one: one.id or ""))
def test_the_programs_of_a_page_run_with_real_jobs(page: str, tmp_path: Path) -> None:
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def shell(script: str) -> None:
        try:
            run_shell(script, tmp_path, env)
        except CalledProcessError as error:
            raise AssertionError(f"{script}\n{error.output}") from None

    _follow(page, shell)


def test_the_blocks_are_counted_by_how_they_are_tested() -> None:
    """`pytest -rP` prints the count of each kind, and the blocks that are not run by their reasons."""
    kinds = Counter(_kind(page, block) for page, block in BLOCKS)
    lines = [f"{count:4} {kind}" for kind, count in kinds.most_common()]
    not_run = [(block.reason, f"{page}:{block.line}") for page, block in BLOCKS if block.reason]
    lines += [f"{reason}: {place}" for reason, place in sorted(not_run)]
    sys.stdout.write("\n".join(lines))
    assert kinds["run in make test"] > kinds["not run, for the reason shown"] / 4
    assert sum(kinds.values()) == len(BLOCKS)


def _kind(page: str, block: Block) -> str:
    if block.reason:
        return "not run, for the reason shown"
    if block.language in PARSERS:
        return "data, parsed"
    if block.title == CALLS:
        return "calls of tools, arguments checked"
    if block.language in ("text", "nginx"):
        return "output and text"
    slow = any(one.is_slow for name, one in BLOCKS if name == page) and page not in BY_OTHER_TESTS
    return "run in make soak" if slow else "run in make test"
