"""Panels of curves and bars side by side."""

from __future__ import annotations

import math
import textwrap
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

rcParams["text.parse_math"] = False  # labels are stored text: a dollar sign never starts a formula

INK, _MUTED, _GRID = "#1d2733", "#5b6773", "#e6eaee"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#8a5fb0", "#b58900")
"""Distinguishable with any colour vision (Okabe & Ito 2008)."""

_WEAK = "#9aa7b4"
_WIDTH, _HEIGHT = 5.0, 3.5
"""Inches of a panel."""
_LINE, _MOST_LINES = 0.27, 2
"""Inches of a line of the title or the subtitle, and most lines of each."""
_LEGEND_ROOM = 0.09
"""Share of a panel's height above its values for each entry of a legend that would cover them."""
_MOST_COLUMNS = 3
_MEASURED = ("measured", "points")
"""Styles of lines whose values have error bars."""
_NAMED_LINES = 2
"""Most lines whose values are written; more would cover each other."""
_NAMED_MARKS = 8
"""Most marks that are labelled; more cannot be read."""


def draw_panels(panels: list[dict[str, Any]], title: str, subtitle: str = "") -> Figure:
    """Draw panels with lines and bars, at most three in a row (four: two and two)."""
    columns = 2 if len(panels) == 4 else min(len(panels), _MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    widest = max(_WIDTH, max(1.15 * len(panel.get("bars", ())) for panel in panels))
    width = max(6.4, widest * columns)
    heading = head_lines(title, subtitle, width)
    head = head_height(heading)
    size = (width, _HEIGHT * rows + head)
    layout = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - head / size[1]), w_pad=0.1, h_pad=0.08, wspace=0.04)
    canvas = Figure(figsize=size, dpi=110, layout=layout)
    axes = canvas.subplots(rows, columns, squeeze=False)
    draw_head(canvas, heading)
    for axis, panel in zip(axes.flat, panels, strict=False):
        draw_panel(axis, panel)
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    return canvas


def head_lines(title: str, subtitle: str, width: float) -> list[tuple[str, dict[str, Any]]]:
    """Return the lines of title and subtitle, which are at most `width` inches wide, with their style."""
    texts = (
        (title, 9.6, {"fontsize": 12, "color": INK, "weight": "bold"}),
        (subtitle, 15, {"fontsize": 9, "color": _MUTED}),
    )
    return [
        (line, style)
        for text, chars_per_inch, style in texts
        for line in textwrap.wrap(text, int(width * chars_per_inch), max_lines=_MOST_LINES, placeholder="…")
    ]


def head_height(lines: list[tuple[str, dict[str, Any]]]) -> float:
    """Return the inches that a title and subtitle take."""
    return 0.21 + _LINE * max(len(lines), 2)


def draw_head(canvas: Figure, lines: list[tuple[str, dict[str, Any]]]) -> None:
    """Write title and subtitle at the top left."""
    width, height = canvas.get_size_inches()
    for place, (line, style) in enumerate(lines):
        canvas.text(0.12 / width, 1 - (0.14 + _LINE * place) / height, line, va="top", **style)


def draw_panel(axis: Axes, panel: dict[str, Any]) -> None:
    """Draw lines, bars and marks with their axes and legend."""
    axis.set_title(panel.get("title", ""), fontsize=10, color=INK, loc="left")
    axis.set_xlabel(panel.get("xlabel", ""), fontsize=8.5, color=_MUTED)
    axis.set_ylabel(panel.get("ylabel", ""), fontsize=8.5, color=_MUTED)
    axis.tick_params(labelsize=8, colors=_MUTED, length=3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#b8c2cc")
    axis.grid(axis="y", color=_GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    if panel.get("log"):
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        axis.yaxis.set_minor_formatter(NullFormatter())
    measured = [line for line in panel.get("lines", ()) if line.get("style") in _MEASURED]
    lowest = min(reversed(measured), key=_last_value) if len(measured) > 1 else None
    for number, line in enumerate(panel.get("lines", ())):
        color = COLORS[number % len(COLORS)]
        if line.get("style") in _MEASURED:
            _draw_measured(axis, line, color)
            if len(measured) <= _NAMED_LINES:
                _name_values(axis, line, color, percent=panel.get("format") == "percent", below=line is lowest)
        else:
            _draw_line(axis, line, color)
        if best := line.get("best"):
            star: dict[str, Any] = {"color": "#e69f00", "markersize": 13, "markeredgecolor": "white", "zorder": 5}
            axis.plot(best["x"], best["y"], "*", label=best.get("label"), **star)
    _draw_bars(axis, panel.get("bars", ()))
    if panel.get("format") == "percent":
        axis.set_ylim(-0.02, 1.08)
        axis.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if "floor" in panel:
        floor = panel["floor"]
        high = max(axis.dataLim.y1, floor + 1)
        axis.set_ylim(max(axis.get_ylim()[0], floor), high + 0.05 * (high - floor))
    if panel.get("lines"):
        axis.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        axis.margins(x=0.06)
    if ticks := panel.get("ticks"):
        axis.set_xticks([tick["x"] for tick in ticks], [tick["label"] for tick in ticks])
    _draw_marks(axis, panel.get("marks", ()))
    if entries := len(axis.get_legend_handles_labels()[1]):
        if entries > 2 and axis.get_yscale() == "linear" and panel.get("format") != "percent":
            low, high = axis.get_ylim()
            axis.set_ylim(low, high + entries * _LEGEND_ROOM * (high - low))
        axis.legend(fontsize=8, frameon=True, framealpha=0.8, edgecolor="none")


def _draw_line(axis: Axes, line: dict[str, Any], color: str) -> None:
    x, y = line["x"], _values(line["y"])
    label, few = line.get("label"), sum(value is not None for value in line["y"]) < 25
    if "smooth" in line:
        axis.plot(x, y, color=color, linewidth=0.9, alpha=0.35)
        axis.plot(x, _values(line["smooth"]), color=color, linewidth=2.0, label=f"{label} (smoothed)")
    else:
        axis.plot(x, y, color=color, linewidth=1.7, marker="o" if few else None, markersize=3.5, label=label)
        if "low" in line:
            axis.fill_between(x, _values(line["low"]), _values(line["high"]), color=color, alpha=0.15, linewidth=0)


def _draw_measured(axis: Axes, line: dict[str, Any], color: str) -> None:
    """Draw values with error bars. Dots join them: nothing was measured in between."""
    x, y, low, high = (_values(line[name]) for name in ("x", "y", "low", "high"))
    spread = [
        [a - b for a, b in zip(y, low, strict=True)],
        [b - a for a, b in zip(y, high, strict=True)],
    ]
    style = "none" if line.get("style") == "points" else ":"
    axis.errorbar(
        x,
        y,
        yerr=spread,
        color=color,
        ecolor=color,
        linestyle=style,
        linewidth=1.7,
        elinewidth=1.4,
        capsize=4,
        marker="o",
        markersize=5,
        label=f"{line.get('label', '')}, 95 % interval",
    )


def _last_value(line: dict[str, Any]) -> float:
    return next((y for y in reversed(line["y"]) if y is not None), math.inf)


def _name_values(axis: Axes, line: dict[str, Any], color: str, *, percent: bool, below: bool) -> None:
    """Write values above or below their error bars."""
    x, y = _values(line["x"]), _values(line["y"])
    edge, shift = (_values(line["low"]), -11) if below else (_values(line["high"]), 3)
    for place, value, end in zip(x, y, edge, strict=True):
        if value == value:  # not a break
            text = percentage(value) if percent else f"{value:.3g}"
            axis.annotate(
                text, (place, end), (0, shift), textcoords="offset points", ha="center", fontsize=9, color=color
            )


def percentage(share: float) -> str:
    """Return a share as percent, with one decimal where it is not whole."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _values(column: list[float | None]) -> list[float]:
    """Return a column with breaks as NaN, which matplotlib leaves out."""
    return [float("nan") if value is None else value for value in column]


def _draw_marks(axis: Axes, marks: Any) -> None:
    for mark in marks:
        axis.axvline(mark["x"], color=_WEAK, linewidth=0.9, linestyle=(0, (3, 3)), zorder=0.5)
        if len(marks) <= _NAMED_MARKS:
            axis.annotate(
                mark["label"],
                (mark["x"], 1),
                (2, -2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                fontsize=7.5,
                color=_MUTED,
                va="top",
            )


def _draw_bars(axis: Axes, bars: Any) -> None:
    for index, bar in enumerate(bars):
        below, above = bar["value"] - bar["low"], bar["high"] - bar["value"]
        color = COLORS[0] if bar.get("strong", True) else _WEAK
        axis.bar(index, bar["value"], yerr=[[below], [above]], capsize=5, width=0.6, color=color, ecolor=INK)
        axis.text(index, bar["high"] + 0.015, percentage(bar["value"]), ha="center", fontsize=9, color=INK)
    if bars:
        labels = [_bar_label(bar["label"], max(14, 56 // len(bars))) for bar in bars]
        axis.set_xticks(range(len(bars)), labels, fontsize=9 if len(bars) < 5 else 7.5)
        axis.set_xlim(-0.6, len(bars) - 0.4)


def _bar_label(label: str, width: int) -> str:
    """Return a name and its number of tasks on lines of at most `width` characters; options begin a line."""
    name, count, rest = label.partition(" (")
    lines = [line for part in name.replace("?", "\n?", 1).split("\n") for line in textwrap.wrap(part, width)]
    return "\n".join([*lines, count.strip() + rest])


def clip(text: str, most: int) -> str:
    """Return a text of at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
