"""Pictures, drawn by a short subprocess so that the server never loads matplotlib; the lineage of a thing as a picture."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from quintain.errors import Unavailable
from quintain.evaluation.reports.figures import Figure, Panel
from quintain.records.lineage import LineageEdge
from quintain.tools.data.lineage import get_lineage
from quintain.tools.services import Services

logger = logging.getLogger(__name__)

_PICTURED = 60
"""Nodes of a picture; more cannot be read."""


def lineage_picture(services: Services, id: str) -> bytes:
    """The lineage of a record as a PNG, with its sources on the left."""
    return draw(lineage_figure(services, id))


def lineage_figure(services: Services, id: str) -> Figure:
    """The lineage of a thing as a figure for `draw`."""
    found = get_lineage(services, id)
    nodes = (*found.things, *found.ancestors, *found.descendants)
    shown = {node.id: node for node in nodes[:_PICTURED]}
    edges = [edge for edge in found.edges if edge.source in shown and edge.target in shown]
    columns = _columns(list(shown), edges)
    left_out = len({node.id for node in nodes}) - len(shown)
    title = f"Lineage of {id}" + (f" ({left_out} more not shown)" if left_out else "")
    roots = {node.id for node in found.things}
    boxes = [
        {
            "id": node.id,
            "kind": node.kind,
            "label": node.label,
            "column": columns[node.id],
            "mark": node.mark,
            "root": node.id in roots,
        }
        for node in shown.values()
    ]
    graph = {"nodes": boxes, "edges": [[edge.source, edge.target] for edge in edges]}
    return Figure(title=title, panels=[Panel(title="", graph=graph)])


def _columns(ids: Sequence[str], edges: Sequence[LineageEdge]) -> dict[str, int]:
    """Each node's column: one to the right of its last source."""
    columns = dict.fromkeys(ids, 0)
    for _ in ids:  # as many rounds as the longest chain can have
        moved = False
        for edge in edges:
            if columns[edge.target] <= columns[edge.source] < len(ids):
                columns[edge.target], moved = columns[edge.source] + 1, True
        if not moved:
            break
    # A node without sources is right before the first node derived from it.
    targets = {edge.target for edge in edges}
    for node in ids:
        after = [columns[edge.target] for edge in edges if edge.source == node]
        if node not in targets and after:
            columns[node] = min(after) - 1
    return columns


def draw(figure: Mapping[str, Any]) -> bytes:
    """Draw a figure description (see worker/pictures/draw.py) as PNG.

    Raises:
        Unavailable: the drawing process failed or took longer than a minute.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "quintain.worker.pictures.draw"],
            input=json.dumps(figure).encode(),
            capture_output=True,
            timeout=60,
            check=True,
        )
    except subprocess.TimeoutExpired:
        fault = "the process that draws it took longer than a minute"
    except subprocess.CalledProcessError as error:
        logger.warning("no picture: %s", error.stderr.decode(errors="replace"))
        fault = f"the process that draws it ended with status {error.returncode}"
    else:
        return done.stdout
    raise Unavailable(
        f"expected a picture, got none: {fault}; call again later, or read the same numbers in the answer"
    )
