"""Packages for one test: their modules and entry points in a folder on the path, as pip would leave them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from quintain import extensions
from quintain.importers import registry

Install = Callable[..., None]


@pytest.fixture
def install_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install_package(name, {module: text}, {group: {entry: value}})`, for this process and those that it starts."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    added: list[str] = []

    def install(name: str, modules: Mapping[str, str], entries: Mapping[str, Mapping[str, str]]) -> None:
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in of.items()) for group, of in entries.items()
        ]
        (info / "entry_points.txt").write_text("".join(lines))
        for module, text in modules.items():
            (site / f"{module}.py").write_text(text, encoding="utf-8")
            added.append(module)
        _forget()

    yield install
    for module in added:
        sys.modules.pop(module, None)
    _forget()


def install_template(install: Install, folder: Path) -> None:
    """Install the package of a folder with a `pyproject.toml` and its modules."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    install(project["name"], modules, project["entry-points"])


def _forget() -> None:
    """Let the next look-up see what is installed now."""
    extensions.extensions_of.cache_clear()
    registry.installed_readers.cache_clear()
