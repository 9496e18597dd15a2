"""Installing in MCP clients, in the home folder of nobody: what is written, what stays, and the way back."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quintain.cli.clients import jsonc, toml
from quintain.cli.clients.clients import BACKUP, CLIENTS, skill_file
from quintain.cli.clients.jsonc import Unreadable
from terminal import quintain

VSCODE = """\
// my servers
{
\t"inputs": [],
\t"servers": {
\t\t"files": {"command": "npx", "args": ["-y", "files"]} /* mine */, // reads /* this */ folder
\t\t/* kept for later: "old": {}, */
\t},
}
"""
CODEX = """\
# my settings
model = "some"   # the best
notes = \"\"\"
[mcp_servers.quintain]
\"\"\"

[mcp_servers.files]
command = "npx"
args = [
  "-y",
  "[files]",
]

[tui]
theme = "dark"
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a user who has no client."""
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "QUINTAIN_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def entry(file: Path, client: str) -> Any:
    text = file.read_text()
    found = toml.loads(text) if file.suffix == ".toml" else jsonc.loads(text)
    for name in CLIENTS[client].path:
        found = found[name]
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_one_entry_and_undo_leaves_nothing(user: Path, client: str) -> None:
    file = CLIENTS[client].config(user)
    shown = quintain("install", client, "--dry-run")
    assert (shown.returncode, file.exists(), "quintain" in shown.stdout) == (0, False, True)
    for _ in range(2):
        done = quintain("install", client, "--home", str(user / "h"), "--yes", "--json")
        assert json.loads(done.stdout)["file"] == str(file)
    assert file.read_text().count('"serve"') == 1
    found = entry(file, client)
    assert Path(found["command"]).exists()
    assert found["args"][-3:] == ["serve", "--home", str(user / "h")]
    assert (found.get("type") == "stdio") == ("type" in CLIENTS[client].extra)
    assert quintain("install", client, "--undo", "--yes").returncode == 0
    assert [path for path in user.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("vscode", VSCODE),
        ("vscode", "// no server yet"),
        ("codex", CODEX),
        ("codex", CODEX.replace("\n", "\r\n")),
        ("gemini", '{"theme": "x"}'),
        ("gemini", '\ufeff{\r\n  "theme": "x"\r\n}\r\n'),
    ],
)
def test_comments_and_all_else_stay_and_undo_restores_every_byte(user: Path, client: str, text: str) -> None:
    file = CLIENTS[client].config(user)
    file.parent.mkdir(parents=True)
    real = user / "dotfiles" / "file"
    real.parent.mkdir()
    real.write_bytes(text.encode())
    real.chmod(0o640)
    file.symlink_to(real)
    done = quintain("install", client, "--yes")
    assert done.returncode == 0, done.stderr
    after = real.read_bytes().decode()
    assert after.count("\r\n") == ("\r\n" in text) * after.count("\n")
    assert all(line.rstrip().rstrip(",}") in after for line in text.splitlines())
    assert (file.is_symlink(), real.stat().st_mode & 0o777) == (True, 0o640)
    assert entry(file, client)["args"] == ["serve"]
    backup = real.with_name(real.name + BACKUP)
    assert backup.read_bytes() == text.encode()
    assert quintain("install", client, "--undo", "--yes").returncode == 0
    assert (real.read_bytes(), backup.exists()) == (text.encode(), False)


def test_the_server_gets_the_home_of_this_shell_whose_variables_no_client_inherits(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUINTAIN_HOME", "~/mine")
    quintain("install", "cursor", "--yes")
    assert entry(CLIENTS["cursor"].config(user), "cursor")["args"] == ["serve", "--home", str(user / "mine")]
    undone = quintain("install", "cursor", "--undo", "--yes")
    assert "Taken out of Cursor. Restart it." in undone.stdout


def test_undo_keeps_what_changed_since_and_puts_an_earlier_entry_back(user: Path) -> None:
    file = CLIENTS["cursor"].config(user)
    file.parent.mkdir()
    earlier = {"command": "old", "args": []}
    file.write_text(json.dumps({"mcpServers": {"quintain": earlier}}))
    quintain("install", "cursor", "--yes")
    assert entry(file, "cursor")["args"] == ["serve"]
    changed = {**jsonc.loads(file.read_text()), "more": 1}
    file.write_text(json.dumps(changed))
    quintain("install", "cursor", "--undo", "--yes")
    assert json.loads(file.read_text()) == {"mcpServers": {"quintain": earlier}, "more": 1}


@pytest.mark.parametrize(
    ("client", "text", "fault"),
    [
        ("cursor", '{\n  "mcpServers": {\n    "a": }\n}', "line 3: Expecting value"),
        ("cursor", '{"mcpServers": []}', "line 1: expected an object, got list"),
        ("cursor", '{"mcpServers": {"quintain": 1, "quintain": 2}}', "once in an object, got it twice"),
        ("vscode", '{\n/* open\n"servers": {}}', "line 2: expected the end of a comment"),
        ("codex", "a = 1\nb = = 2\n", "line 2"),
        ("codex", 'mcp_servers = {files = {command = "x"}}\n', "got another notation"),
        ("codex", "[[mcp_servers]]\na = 1\n", "got another notation"),
        ("codex", '[mcp_servers]\nquintain.command = "x"\n', "as a separate table, [mcp_servers.quintain]"),
        ("gemini", "[" * 100_000, "expected fewer levels"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_line_and_stays(
    user: Path, client: str, text: str, fault: str
) -> None:
    file = CLIENTS[client].config(user)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    done = quintain("install", client, "--yes")
    assert (done.returncode, file.read_text()) == (2, text)
    assert "[bad_client_file]" in done.stderr
    assert fault in done.stderr
    assert list(file.parent.iterdir()) == [file]


def test_wrong_requests_are_refused_with_the_remedy(user: Path) -> None:
    assert "did you mean 'cursor'" in quintain("install", "cursr").stderr
    assert "expected --yes or --dry-run with --json" in quintain("install", "cursor", "--json").stderr
    file = CLIENTS["cursor"].config(user)
    quintain("install", "cursor", "--yes")
    file.write_text(file.read_text().replace('"quintain": {', '"Mine": {'))
    assert "got one named Mine" in quintain("install", "cursor", "--yes").stderr
    assert "got Claude Desktop; upload" in quintain("install", "claude-desktop", "--skill", "--yes").stderr
    file.write_bytes(b"\xff")
    assert "expected UTF-8" in quintain("install", "cursor", "--yes").stderr


def test_the_skill_is_written_where_the_client_looks_and_taken_out(user: Path) -> None:
    written = quintain("install", "claude-code", "--skill", "--yes")
    assert (written.returncode, "/mcp" in written.stdout) == (0, False)
    assert "Installed in Claude Code. Its new sessions read the skill." in written.stdout
    file = user / ".claude" / "skills" / "quintain" / "SKILL.md"
    assert file.read_bytes() == skill_file().read_bytes()
    assert quintain("install", "claude-code", "--skill", "--undo", "--yes").returncode == 0
    assert (file.parent.exists(), file.parents[1].exists()) == (False, True)


DOCUMENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(
    document=st.dictionaries(
        st.sampled_from(["mcpServers", "a", "é\n"]), st.dictionaries(st.text(max_size=4), DOCUMENT)
    ),
    indent=st.sampled_from([None, 2, "\t"]),
)
def test_an_entry_is_set_and_removed_in_any_document(document: dict[str, Any], indent: Any) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    assert jsonc.loads(text) == document
    path = ("mcpServers", "quintain")
    entry = {"command": "x", "args": ["a"]}
    added = jsonc.with_entry(text, path, entry)
    servers = document.get("mcpServers", {})
    assert jsonc.loads(added) == {**document, "mcpServers": {**servers, "quintain": entry}}
    assert jsonc.loads(jsonc.with_entry(added, path, {})) == {**document, "mcpServers": {**servers, "quintain": {}}}
    rest = {name: value for name, value in servers.items() if name != "quintain"}
    assert jsonc.loads(jsonc.without_entry(added, path)) == {**document, "mcpServers": rest}


@pytest.mark.parametrize(
    ("client", "text"),
    [
        (
            "codex",
            '[mcp_servers.quintain]\ncommand = "old"\nstart_s = 9.5\n[mcp_servers.quintain.env]\n"A.B" = "é"\n[b]\n',
        ),
        ("cursor", '{"mcpServers": {"quintain": {"command": "old", "start_s": 9.5, "env": {"A.B": "é"}}}, "b": {}}'),
    ],
)
def test_a_second_install_keeps_what_the_user_added_to_the_entry(user: Path, client: str, text: str) -> None:
    file = CLIENTS[client].config(user)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    for _ in range(2):
        assert quintain("install", client, "--yes").returncode == 0
    added = {name: value for name, value in entry(file, client).items() if name not in {"command", "args"}}
    assert added == {"start_s": 9.5, "env": {"A.B": "é"}}
    assert "\n\n\n" not in file.read_text()


def test_a_file_of_many_tables_is_read_a_few_times_and_not_once_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codex writes a table for each trusted folder."""
    text = "".join(f'[projects."/{n}"]\ntrust_level = "trusted"\n' for n in range(200)) + "[mcp_servers.files]\na = 1\n"
    whole, loads = [], tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda part: (whole.append(len(part) > 100), loads(part))[1])
    added = toml.with_entry(text, ("mcp_servers", "quintain"), {"command": "x"})
    assert toml.without_entry(added, ("mcp_servers", "quintain")) == text
    assert sum(whole) < 10


def test_toml_tables_are_replaced_with_their_subtables_and_nothing_else() -> None:
    path = ("mcp_servers", "quintain")
    text = '[mcp_servers.quintain]\ncommand = "old"\n[mcp_servers.quintain.env]\nA = "1"\n# of b\n[b]\n'
    changed = toml.with_entry(text, path, {"command": "new", "args": ["x"]})
    assert tomllib.loads(changed) == {"mcp_servers": {"quintain": {"command": "new", "args": ["x"]}}, "b": {}}
    assert "# of b\n[b]\n" in changed
    assert tomllib.loads(toml.without_entry(text, path)) == {"b": {}}
    assert toml.without_entry("[a]\n", path) == "[a]\n"
    with pytest.raises(Unreadable):
        toml.with_entry("[a", path, {})
