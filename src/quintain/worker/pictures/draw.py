"""Draw a figure: `python -m quintain.worker.pictures.draw` reads a description from stdin and writes a PNG to stdout.

The description is a `quintain.evaluation.reports.figures.Figure`.
"""

from __future__ import annotations

import io
import json
import sys
import textwrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import PercentFormatter

from quintain.worker.pictures.panels import clip, draw_head, draw_panel, draw_panels, head_height, head_lines

_INK = "#26323f"
_FILL = {
    "trajectory": "#e3ecf7",
    "trajectories": "#e3ecf7",
    "score": "#f3ecdc",
    "dataset": "#dcefe4",
    "job": "#eef0f2",
    "checkpoint": "#eef0f2",
    "agent": "#f9e3cd",
    "evaluation": "#ece2f4",
    "comparison": "#ece2f4",
}
_MARKED = "#b3261e"
_WIDTH, _HEIGHT = 1.9, 0.62
_GAP_X, _GAP_Y = 0.75, 0.28
"""Inches, of a box and between boxes."""


def draw_graph(graph: dict[str, Any], title: str) -> Figure:
    """Draw a graph whose nodes have a column. Nodes are placed near their sources."""
    places = _places(graph)
    columns = 1 + max((x for x, _ in places.values()), default=0)
    rows = 1 + max((y for _, y in places.values()), default=0)
    width, height = columns * (_WIDTH + _GAP_X) + 0.2, rows * (_HEIGHT + _GAP_Y) + 0.6
    canvas = Figure(figsize=(max(width, 5), height), dpi=110)
    axis: Axes = canvas.add_axes((0, 0, 1, 1))
    axis.set(xlim=(0, max(width, 5)), ylim=(height, 0))
    axis.axis("off")
    axis.text(0.2, 0.28, title, fontsize=11, color=_INK, va="center")
    corner = {node: (0.2 + x * (_WIDTH + _GAP_X), 0.5 + y * (_HEIGHT + _GAP_Y)) for node, (x, y) in places.items()}
    for start, end in graph["edges"]:
        (x0, y0), (x1, y1) = corner[start], corner[end]
        ends = ((x0 + _WIDTH + 0.04, y0 + _HEIGHT / 2), (x1 - 0.04, y1 + _HEIGHT / 2))
        bend = 0.0 if y0 == y1 else 0.08
        style = f"arc3,rad={bend if y1 < y0 else -bend}"
        axis.add_patch(
            FancyArrowPatch(
                *ends, arrowstyle="-|>", mutation_scale=9, linewidth=0.9, color="#7b8794", connectionstyle=style
            )
        )
    for node in graph["nodes"]:
        _box(axis, node, *corner[node["id"]])
    return canvas


def _places(graph: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Return (column, row) of each node. Columns are ordered by the mean row of the nodes' sources."""
    first = min((node["column"] for node in graph["nodes"]), default=0)
    by_column: dict[int, list[str]] = {}
    for node in graph["nodes"]:
        by_column.setdefault(node["column"] - first, []).append(node["id"])
    tallest = max((len(nodes) for nodes in by_column.values()), default=0)
    found: dict[str, tuple[int, float]] = {}

    def mean_source_row(node: str) -> float:
        rows = [found[start][1] for start, end in graph["edges"] if end == node and start in found]
        return sum(rows) / len(rows) if rows else tallest / 2

    for column in sorted(by_column):
        nodes = sorted(by_column[column], key=mean_source_row)
        top = (tallest - len(nodes)) / 2
        found.update((node, (column, top + i)) for i, node in enumerate(nodes))
    return found


def _box(axis: Axes, node: dict[str, Any], x: float, y: float) -> None:
    edge = _MARKED if node.get("mark") else _INK if node.get("root") else "#b8c2cc"
    axis.add_patch(
        FancyBboxPatch(
            (x, y),
            _WIDTH,
            _HEIGHT,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=_FILL.get(node["kind"], "#ffffff"),
            edgecolor=edge,
            linewidth=1.8 if node.get("root") or node.get("mark") else 0.8,
        )
    )
    head = node["kind"] + (f" · {node['mark']}" if node.get("mark") else "")
    axis.text(x + 0.08, y + 0.13, head, fontsize=6.5, color=_MARKED if node.get("mark") else "#5b6773", va="center")
    lines = textwrap.wrap(node["label"], 29, max_lines=2, placeholder=" …") or [node["id"]]
    for i, line in enumerate(lines):
        axis.text(x + 0.08, y + 0.31 + 0.17 * i, line, fontsize=7.5, color=_INK, va="center")


_STRONG, _WEAK = "#0072b2", "#9aa7b4"
_MAX_LABEL_CHARS = 44
"""Characters per line of a label."""

_FOREST_WIDTH = 9.5
_CURVES_HEIGHT = 7.0


def draw_forest(panels: list[dict[str, Any]], title: str, subtitle: str = "") -> Figure:
    """Draw panels of estimates or lines below each other. Strong estimates are significant."""
    heights = [_CURVES_HEIGHT if "lines" in panel else max(len(panel["forest"]), 1) + 1.6 for panel in panels]
    heading = head_lines(title, subtitle, _FOREST_WIDTH)
    head = head_height(heading)
    size = (_FOREST_WIDTH, 0.4 * sum(heights) + head)
    layout = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - head / size[1]), h_pad=0.08)
    canvas = Figure(figsize=size, dpi=110, layout=layout)
    axes = canvas.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    draw_head(canvas, heading)
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        if "lines" in panel:
            draw_panel(axis, panel)
        else:
            axis.set_title(panel["title"], fontsize=9.5, color=_INK, loc="left")
            _draw_estimates(axis, panel)
    return canvas


def _draw_estimates(axis: Any, panel: dict[str, Any]) -> None:
    rows = panel["forest"]
    if panel.get("origin") is not None:
        axis.axvline(panel["origin"], color=_INK, linewidth=0.8, linestyle=":")
    for place, row in enumerate(rows):
        color = _STRONG if row["strong"] else _WEAK
        if row.get("wide") is not None:
            axis.plot(row["wide"], [place, place], color=color, linewidth=0.8, solid_capstyle="butt")
        axis.plot([row["low"], row["high"]], [place, place], color=color, linewidth=2, solid_capstyle="butt")
        axis.plot([row["value"]], [place], "o", color=color, markersize=5)
        beside = axis.get_yaxis_transform()
        axis.text(1.01, place, row["note"], transform=beside, fontsize=8, color=_INK, va="center")
    axis.set_yticks(range(len(rows)), [_label(row["label"]) for row in rows], fontsize=8)
    axis.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axis.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.tick_params(axis="x", labelsize=8)
    axis.spines[["top", "right", "left"]].set_visible(False)


def _label(text: str) -> str:
    return "\n".join(clip(line, _MAX_LABEL_CHARS) for line in text.splitlines()[:2])


def draw(figure: dict[str, Any]) -> bytes:
    """Draw a figure description as PNG. One without panels says that nothing was measured."""
    panels, title, subtitle = figure["panels"], figure.get("title", ""), figure.get("subtitle", "")
    if not panels:
        canvas = Figure(figsize=(6, 2))
        canvas.text(0.5, 0.5, f"{title}\nNothing was measured.", ha="center", va="center", wrap=True)
        return _png(canvas)
    if "graph" in panels[0]:
        return _png(draw_graph(panels[0]["graph"], title))
    if "forest" in panels[0]:
        return _png(draw_forest(panels, title, subtitle))
    return _png(draw_panels(panels, title, subtitle))


def _png(canvas: Figure) -> bytes:
    """Render once: `savefig` draws everything twice, the first time for a layout that drawing makes anyway."""
    out = io.BytesIO()
    FigureCanvasAgg(canvas).print_png(out)  # type: ignore[no-untyped-call]
    return out.getvalue()


if __name__ == "__main__":
    sys.stdout.buffer.write(draw(json.load(sys.stdin)))
