"""Draw a figure: `python -m quintain.worker.pictures.draw` reads a description from stdin and writes a PNG to stdout.

{"title": str, "panels": [{"title", "xlabel"?, "ylabel"?,
"lines"?: [{"label"?, "x": [..], "y": [..], "low"?: [..], "high"?: [..], "best"?: {"x", "y"}}],
"bars"?:  [{"label", "value", "low", "high"}],
"forest"?: [{"label", "value", "low", "high", "strong", "note"}], "origin"?, or under them
"curves"?: [{"label", "points": [{"x", "name", "value", "low", "high"}]}],
"graph"?: {"nodes": [{"id", "kind", "label", "column", "mark", "root"}], "edges": [[from, to]]}}]}
"""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from quintain.worker.pictures.forest_plot import draw_forest
from quintain.worker.pictures.lineage_graph import draw_graph

_INK, _MARK, _BARS = "#26323f", "#d98324", ("#9aa7b4", "#2f6db5", "#d98324", "#3d9970")


def draw(figure: dict[str, Any]) -> bytes:
    """Draw a figure description as PNG, panels side by side."""
    panels = figure["panels"]
    if "graph" in panels[0]:
        return _png(draw_graph(panels[0]["graph"], figure.get("title", "")))
    if "forest" in panels[0]:
        return _png(draw_forest(panels, figure.get("title", "")))
    return _png(draw_panels(panels, figure.get("title", "")))


def draw_panels(panels: list[dict[str, Any]], title: str) -> Figure:
    """Draw panels with lines and bars side by side."""
    widest = max(len(panel.get("bars", ())) for panel in panels)
    canvas, axes = plt.subplots(
        1,
        len(panels),
        figsize=(max(4.6, 1.1 * widest) * len(panels), 3.4),
        dpi=110,
        squeeze=False,
        layout="constrained",
    )
    canvas.suptitle(_plain(title), fontsize=11, color=_INK, wrap=True)
    for axis, panel in zip(axes[0], panels, strict=True):
        axis.set_title(panel.get("title", ""), fontsize=10, color=_INK)
        axis.set_xlabel(panel.get("xlabel", ""), fontsize=9)
        axis.set_ylabel(panel.get("ylabel", ""), fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        for line in panel.get("lines", ()):
            axis.plot(
                line["x"],
                line["y"],
                label=line.get("label"),
                linewidth=1.6,
                marker="." if len(line["x"]) < 25 else None,
            )
            if "low" in line:
                axis.fill_between(line["x"], line["low"], line["high"], color=axis.lines[-1].get_color(), alpha=0.15)
            if best := line.get("best"):
                axis.plot(best["x"], best["y"], "o", color=_MARK, label=f"best: step {best['x']}, {best['y']:.4g}")
        if panel.get("lines"):
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        if any("label" in line or "best" in line for line in panel.get("lines", ())):
            axis.legend(fontsize=8, frameon=False)
        _draw_bars(axis, panel.get("bars", ()))
    return canvas


def _plain(text: str) -> str:
    """Return text without mathematical markup."""
    return text.replace("$", r"\$")


def _png(canvas: Figure) -> bytes:
    out = io.BytesIO()
    canvas.savefig(out, format="png")
    plt.close(canvas)
    return out.getvalue()


def _draw_bars(axis: Any, bars: Any) -> None:
    for index, bar in enumerate(bars):
        below, above = bar["value"] - bar["low"], bar["high"] - bar["value"]
        axis.bar(
            index,
            bar["value"],
            yerr=[[below], [above]],
            capsize=5,
            width=0.6,
            color=_BARS[index % len(_BARS)],
            ecolor=_INK,
        )
        axis.text(index, min(1.0, bar["high"]) + 0.02, f"{bar['value']:.0%}", ha="center", fontsize=9, color=_INK)
    if bars:
        names = [_plain(bar["label"]).replace(" (", "\n(") for bar in bars]
        axis.set_xticks(range(len(bars)), names, fontsize=9 if len(bars) < 5 else 7)
        axis.set_ylim(0, 1.1)


if __name__ == "__main__":
    sys.stdout.buffer.write(draw(json.load(sys.stdin)))
