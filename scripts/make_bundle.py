"""Write `dist/quintain-VERSION.mcpb`, the bundle that desktop clients install with a double click.

Run as `python -m scripts.make_bundle`, after `pip wheel --no-deps -w dist .`; `make bundle` does both and validates. The bundle has
the wheel, and a `pyproject.toml` from which the client's uv installs it with its dependencies. The same wheel gives the same bytes.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from quintain import __version__
from quintain.tools.catalog import CATALOG

ROOT = Path(__file__).parents[1]
ABOUT = "Train agents by conversation: record runs, score them, freeze datasets, train, evaluate and compare."
_SERVER = """\
from quintain.cli.main import app

app(["serve"])
"""
_DATE = (1980, 1, 1, 0, 0, 0)


def manifest() -> dict[str, Any]:
    """Return `manifest.json` of format 0.4: github.com/modelcontextprotocol/mcpb/blob/main/MANIFEST.md."""
    return {
        "manifest_version": "0.4",
        "name": "quintain",
        "display_name": "Quintain",
        "version": __version__,
        "description": ABOUT,
        "author": {"name": "Quintain contributors"},
        "license": "Apache-2.0",
        "keywords": ["agents", "fine-tuning", "sft", "grpo", "evaluation"],
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", "server.py"]},
        },
        "tools": [{"name": spec.name, "description": spec.title} for spec in CATALOG],
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.11"}},
    }


def project(wheel: str) -> str:
    """Return `pyproject.toml`, from which uv installs the wheel beside it."""
    return (
        f'[project]\nname = "quintain-bundle"\nversion = "{__version__}"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["quintain"]\n\n[tool.uv.sources]\nquintain = {{ path = "{wheel}" }}\n'
    )


def write(wheel: Path, bundle: Path) -> None:
    """Write a bundle of a wheel."""
    files = {
        "manifest.json": json.dumps(manifest(), indent=2).encode() + b"\n",
        "pyproject.toml": project(wheel.name).encode(),
        "server.py": _SERVER.encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)


def main() -> int:
    """Bundle the wheel of this version in `dist/`."""
    (ROOT / "dist").mkdir(exist_ok=True)
    wheels = sorted((ROOT / "dist").glob(f"quintain-{__version__}-*.whl"))
    if len(wheels) != 1:
        print(f"expected one wheel of {__version__} in dist/, got {len(wheels)}; run make wheel", file=sys.stderr)
        return 1
    bundle = ROOT / "dist" / f"quintain-{__version__}.mcpb"
    write(wheels[0], bundle)
    print(f"{bundle.relative_to(ROOT)} ({bundle.stat().st_size / 2**20:.1f} MiB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
