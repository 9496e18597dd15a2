"""One HTML file from the modules of the web page: scripts and styles inside, no request outside.

Each module becomes a function that returns its exports, in the order of imports, so that the file needs no module loader:
a host's sandbox and a file on a disk allow none.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parents[2] / "ui" / "static"
"""The modules of the web page."""

STYLES = ("style.css", "compare.css", "vendor/uplot.css")

_IMPORT = re.compile(r'^import (?:(?P<default>\w+)|\{(?P<names>[^{}]*)\}) from "(?P<path>\.[\w./-]+)";$', re.M)
_EXPORT = re.compile(
    r"^export (?:(?P<default>default) (?P<value>\w+);$|(?=(?:async )?(?:function\*?|class|const|let) (?P<name>\w+)))",
    re.M,
)
_LEFT = re.compile(r"^(?:import|export)\b.*$", re.M)


def standalone_page(entry: str | None, body: str, *, title: str, data: Any = None) -> str:
    """Return the page whose script is a module of `ui/static` with all that it imports.

    Args:
        entry: The module, below `STATIC`; None: a page without a script.
        body: HTML of the body, whose stored text is escaped already.
        title: The page's title, plain text.
        data: JSON that the script reads from the element `data`; None: no element.
    """
    script = "" if entry is None else inlined_modules(entry)
    style = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    scripts = f"'{_digest(script)}'" if script else "'none'"
    policy = f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src {scripts}"
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n<body>{body}",
    ]
    if data is not None:
        parts.append(f'<script type="application/json" id="data">{_json_in_html(data)}</script>')
    if script:
        parts.append(f"<script>{script}</script>")
    return "\n".join([*parts, "</body></html>\n"])


@cache
def inlined_modules(entry: str) -> str:
    """Return one classic script that runs a module after those that it imports.

    Raises:
        ValueError: an import or export in a form that is not supported, or an import in a circle.
    """
    done: dict[str, str] = {}
    _inline(STATIC / entry, done, ())
    return '"use strict";\n(() => {\nconst modules = {};\n' + "\n".join(done.values()) + "\n})();"


def _inline(path: Path, done: dict[str, str], above: tuple[Path, ...]) -> str:
    """Inline a module and its imports. Return its key."""
    path = path.resolve()
    key = path.relative_to(STATIC.resolve()).as_posix()
    if path in above:
        raise ValueError(f"expected imports without a circle, got one through {key}")
    if key in done:
        return key
    text = path.read_text(encoding="utf-8")

    def imported(found: re.Match[str]) -> str:
        source = _inline(path.parent / found["path"], done, (*above, path))
        names = f"default: {found['default']}" if found["default"] else found["names"].replace(" as ", ": ")
        return f"const {{ {names} }} = modules[{json.dumps(source)}];"

    exports = [f"default: {found['value']}" if found["default"] else found["name"] for found in _EXPORT.finditer(text)]
    code = _EXPORT.sub("", _IMPORT.sub(imported, text))
    if (left := _LEFT.search(code)) is not None:
        raise ValueError(f"expected a plain import or export in {key}, got {left[0][:80]!r}")
    code = code.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    done[key] = f"modules[{json.dumps(key)}] = (() => {{\n{code}\nreturn {{ {', '.join(exports)} }};\n}})();"
    return key


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _json_in_html(data: Any) -> str:
    """Return JSON in which no text can end its element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
