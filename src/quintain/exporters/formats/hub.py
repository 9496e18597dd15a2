"""A folder for the Hugging Face Hub: rows in TRL's format, and a dataset card that lists their sources."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quintain.datasets.manifest import manifest_entries
from quintain.datasets.rows import trajectories_of
from quintain.exporters.chat_turns import Losses
from quintain.exporters.formats.parquet import has_pyarrow, write_json_columns
from quintain.exporters.formats.trl import FEATURES, trl_lines
from quintain.exporters.protocol import Export, Exporter, Rows
from quintain.exporters.split_files import Line, front_matter, json_lines, write_splits
from quintain.records.dataset import Dataset, Row, SplitName

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_LICENSE = (
    "Not stated. What people, tools and models wrote in these runs is theirs: settle it before you share the dataset, and put it "
    "in the header above."
)


@dataclass
class _SourceCounts:
    """Counts for the card, taken while the rows stream by."""

    sources: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    masked: int = 0

    def add(self, row: Row) -> None:
        for run in trajectories_of(row):
            self.sources[run.source.format] += 1
            for step in run.agent_steps:
                self.turns += 1
                self.masked += step.is_masked


def _write(dataset: Dataset, rows: Rows, folder: Path) -> Export:
    counts, features = _SourceCounts(), FEATURES[dataset.kind]
    in_parquet = has_pyarrow()

    def convert(row: Row, losses: Losses) -> Iterator[Line]:
        lines = list(trl_lines(row, losses))
        counts.add(row)
        yield from lines

    def write(lines: Iterable[Line], split: SplitName) -> tuple[str, int]:
        name = f"{split}.parquet"
        return name, write_json_columns(lines, folder / name, features)

    export = write_splits(dataset, rows, convert, write if in_parquet else json_lines(folder))
    (folder / "README.md").write_text(_card(dataset, export, counts), encoding="utf-8")
    export.notes["nothing was uploaded; the card's license is `unknown` until you state one"] = None
    if not in_parquet:
        export.notes["the data is JSON lines; with pyarrow (pip install 'quintain[data]') it is Parquet"] = None
    return export


EXPORTER = Exporter("hub", frozenset(FEATURES), _write)


def _card(dataset: Dataset, export: Export, counts: _SourceCounts) -> str:
    manifest = manifest_entries(Path(dataset.path))
    rows = export.rows.total()
    header = front_matter(
        export,
        FEATURES[dataset.kind],
        pretty_name=dataset.name,
        license="unknown",
        task_categories=["text-generation"],
        size_categories=[next((name for bound, name in _SIZES if rows < bound), "n>1M")],
        tags=["agent-traces", "tool-use", "trl", "quintain"],
    )
    dropped = {**dataset.dropped, **export.dropped}
    masks = f"{counts.turns:,} turns of agents, of which {counts.masked:,} are context and not to be trained on."
    parts = [
        f"# {_cell(dataset.name)}\n\nKind `{dataset.kind}`, exported by Quintain as `{dataset.id}`"
        + (f" on {dataset.created_at:%Y-%m-%d}" if dataset.created_at else "")
        + ". The columns are those of TRL.",
        f"## Splits\n\n{_table('split', 'rows', {Path(name).stem: n for name, n in export.rows.items()})}\n\n"
        f"Split by task, never by row, with seed {dataset.seed}.",
        f"## Sources\n\n{_table('format of the log', 'runs', counts.sources)}\n\n{_table('environment', 'runs', dataset.environments)}",
        f"## Filters\n\n```json\n{json.dumps(manifest.get('selection', {}), indent=2, ensure_ascii=False)}\n```\n\n"
        f"Left out: {_listed(dropped)}.",
        f"## Masks\n\n{masks if counts.turns else 'No turns of agents.'}",
        f"## Redactions\n\n{_listed(manifest.get('redactions', {}))}.",
        f"## Source models and their terms\n\n{_table('model', 'turns', dataset.source_models)}\n\n"
        + (
            "\n".join(f"- {note}" for note in dataset.licence_notes)
            or "None of them is known here to restrict training."
        ),
        f"## What these columns do not hold\n\n{_bullets(export.notes)}",
        f"## License\n\n{_LICENSE}",
    ]
    return header + "\n\n".join(parts) + "\n"


def _table(name: str, of: str, counts: Mapping[str, int]) -> str:
    if not counts:
        return f"No {name} is known."
    lines = [f"| {name} | {of} |", "| --- | ---: |"]
    return "\n".join([*lines, *(f"| {_cell(key)} | {n:,} |" for key, n in sorted(counts.items()))])


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{_cell(name)} {n:,}" for name, n in sorted(counts.items())) or "nothing"


def _bullets(notes: Iterable[str]) -> str:
    return "\n".join(f"- {note}" for note in notes) or "Nothing is lost."


def _cell(text: str) -> str:
    """Text from logs as one cell of a table, never as markup."""
    flat = " ".join(text.split())
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#!" else c for c in flat)
