"""What a release consists of agrees with itself: versions, tools, the wheel's rules, and the skill."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from pathlib import Path

import yaml
from scripts.make_bundle import manifest, project, write

from quintain import __version__
from quintain.cli.clients.clients import skill_file
from quintain.tools.catalog import CATALOG
from quintain.tools.invocation import arguments_model

ROOT = Path(__file__).parents[2]


def test_every_manifest_has_the_version_of_the_package() -> None:
    server = json.loads((ROOT / "server.json").read_text())
    market = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
    (listed,) = market["plugins"]
    plugin = ROOT / listed["source"]
    versions = [
        server["version"],
        *(package["version"] for package in server["packages"]),
        listed["version"],
        json.loads((plugin / ".claude-plugin" / "plugin.json").read_text())["version"],
        manifest()["version"],
        tomllib.loads(project("a.whl"))["project"]["version"],
    ]
    assert set(versions) == {__version__}
    names = re.findall(r"mcp-name: (\S+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert names == ([] if server["name"] == "io.github.OWNER/quintain" else [server["name"]])
    assert (len(server["description"]) <= 100, plugin / "skills" / "quintain" / "SKILL.md") == (True, skill_file())
    assert json.loads((plugin / ".mcp.json").read_text())["mcpServers"]["quintain"]["args"] == ["serve"]


def test_a_bundle_has_its_wheel_and_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    wheel = tmp_path / "quintain-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    for name in ("a", "b"):
        write(wheel, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a") as bundle:
        about = json.loads(bundle.read("manifest.json"))
        source = tomllib.loads(bundle.read("pyproject.toml").decode())["tool"]["uv"]["sources"]["quintain"]["path"]
        assert bundle.read(source) == b"wheel"
        assert about["server"]["entry_point"] in bundle.namelist()
    assert [tool["name"] for tool in about["tools"]] == [spec.name for spec in CATALOG]


def test_the_skill_names_tools_and_arguments_that_exist() -> None:
    _, head, text = skill_file().read_text(encoding="utf-8").split("---\n", 2)
    front = yaml.safe_load(head)
    assert front["name"] == skill_file().parent.name
    assert 100 < len(front["description"]) <= 1024
    assert len(text.splitlines()) < 120
    tools = {spec.name: spec for spec in CATALOG}
    called = re.findall(r"`([a-z_]+)\(([^`]*)\)`", text)
    assert len(called) >= 8
    for name, written in called:
        assert name in tools, name
        named = re.findall(r"(?:^|, )(\w+)(?==|,|$)", written)
        assert set(named) <= set(arguments_model(tools[name]).model_fields), (name, named)
    mentioned = set(re.findall(r"`((?:get|list|start|search|export|import|record|plan|compare|evaluate)_\w+)`", text))
    assert mentioned <= set(tools)
