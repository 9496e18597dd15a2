from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quintain.environments import configuration, registry
from quintain.environments.servers import find_server, read_servers
from quintain.errors import InvalidInput, NotFound, QuintainError, Refused, Unavailable
from quintain.records.trajectory import Task
from quintain.tools.data.library import list_library
from quintain.tools.services import open_services

GOOD = """
[mcp.shop]
command = "venvs/shop/bin/serve"
args = ["--quiet"]
env = {MODE = "test"}
pass_env = ["SHOP_KEY"]
tools = ["get_*", "add"]
deny = ["get_secret"]
tasks = "shop.jsonl"
max_turns = 4
timeout_s = 2
setup = [{tool = "add", args = {a = 1}}]
fresh = "session"

[mcp.plain]
command = "plain-server"
"""


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "environments.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def configure():
    yield configuration.configure
    configuration.configure(None)


def test_servers_are_read_and_their_paths_are_relative_to_the_file(file) -> None:
    path = file(GOOD)
    shop = find_server(path, "shop")
    assert (shop.id, shop.max_turns, shop.timeout_s, shop.fresh) == ("mcp:shop", 4, 2.0, "session")
    assert shop.command == str(path.parent / "venvs/shop/bin/serve")
    assert shop.tasks == str(path.parent / "shop.jsonl")
    assert shop.setup[0].args == {"a": 1}
    plain = find_server(path, "plain")
    assert (plain.command, plain.tools, plain.fresh, plain.max_turns) == ("plain-server", "all", "episode", 10)


def test_without_a_file_there_are_no_servers(tmp_path: Path) -> None:
    assert read_servers(tmp_path / "environments.toml") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mcp.a]\n", r"environments.toml \[mcp.a\].command is required"),
        ('[mcp.a]\ncommand = "x"\ncomand = "y"', r"comand is not a known field \(did you mean 'command'\?\)"),
        ('[mcp.a]\ncommand = "x"\nmax_turns = 0', r"max_turns.*greater than or equal to 1, got 0"),
        ('[mcp.a]\ncommand = "x"\ntimeout_s = true', "expected a number, got a boolean"),
        ('[mcp.a]\ncommand = "x"\nfresh = "never"', r"fresh: expected one of episode, session, got 'never'"),
        ('[mcp."a b"]\ncommand = "x"', "name"),
        ('[mcp]\na = "x"', r"write \[mcp.a\] above its fields"),
        ('[server]\ncommand = "x"', r"only tables .mcp.NAME.,.*, got 'server'"),
        ("command = ", "expected TOML in UTF-8"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_what_is_valid(file, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_servers(file(text))


@pytest.mark.parametrize("field", ['env = {API_KEY = "sk-abcdef"}', 'pass_env = ["sk-abc def"]'])
def test_a_key_in_the_file_is_refused_and_not_repeated(file, field: str) -> None:
    with pytest.raises(Refused, match="pass_env") as caught:
        read_servers(file(f'[mcp.a]\ncommand = "x"\n{field}'))
    assert "sk-" not in str(caught.value)


def test_an_unknown_server_names_the_known_ones_and_how_to_write_one(file, configure) -> None:
    configure(file(GOOD))
    with pytest.raises(NotFound, match=r"got 'shob' \(did you mean 'shop'\?\); known: plain, shop.*\[mcp.NAME\]"):
        registry.task_source("mcp:shob")


def test_servers_are_listed_without_being_started(file, configure, settings) -> None:
    """The command does not exist: listing it would fail if it were started."""
    settings.environments_file.write_text(GOOD, encoding="utf-8")
    services = open_services(settings)
    try:
        assert {"mcp:shop", "mcp:plain", "quintain/inventory"} <= set(registry.environment_ids())
        items = {item["id"]: item for item in list_library(services, "environments").items}
        assert items["mcp:shop"]["tools"] == ["get_*", "add"]
        assert items["mcp:shop"]["tasks"] == "shop.jsonl"
        assert "SHOP_KEY" not in str(items["mcp:shop"])
        settings.environments_file.write_text("[mcp.", encoding="utf-8")
        items = {item["id"]: item for item in list_library(services, "environments").items}
        assert "expected TOML" in items["mcp:"]["unusable"]
        assert "quintain/inventory" in items
        with pytest.raises(QuintainError, match="expected TOML"):
            registry.task_source("mcp:shop")
    finally:
        services.close()


def test_a_variable_that_is_not_set_is_named_before_anything_starts(file, configure, tmp_path: Path) -> None:
    path = file(GOOD)
    (tmp_path / "shop.jsonl").write_text('{"id": "a", "prompt": "Do."}\n', encoding="utf-8")
    configure(path)
    episode = registry.task_source("mcp:shop").make()
    with pytest.raises(Unavailable, match="expected the variable SHOP_KEY"):
        episode.reset(Task(id="a", prompt="Do."))


def test_servers_take_their_tasks_as_an_option_too(file, configure, tmp_path: Path) -> None:
    configure(file(GOOD))
    (tmp_path / "other.jsonl").write_text('{"id": "a", "prompt": "Do.", "split": "train"}\n', encoding="utf-8")
    source = registry.task_source(f"mcp:plain?tasks={tmp_path / 'other.jsonl'}")
    assert [task.id for task in source.tasks("train", 1, 0)] == ["a"]
    with pytest.raises(InvalidInput, match="got 'command'; valid: generated, tasks"):
        registry.task_source("mcp:plain?command=sh")


def test_a_program_that_knows_of_servers_imports_no_client_until_one_starts(file) -> None:
    program = (
        "import sys; from pathlib import Path; from quintain.environments import configuration, registry; "
        f"configuration.configure(Path({str(file(GOOD))!r})); registry.task_source('mcp:plain'); "
        "print([name for name in ('mcp', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
