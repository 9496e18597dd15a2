"""The header of a data set card, by which `datasets` and the Hub know files and columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from quintain.exporters.protocol import Export


def front_matter(export: Export, features: Mapping[str, str], **more: object) -> str:
    """YAML between lines of dashes: the files of each split and the type of each column.

    Args:
        export: Its files are named by split.
        features: Column -> `list: json`, `dtype: string`, ...
        **more: Further entries, before those.
    """
    files = [{"split": Path(name).stem, "path": name} for name in export.rows]
    columns = [{"name": name, **yaml.safe_load(feature)} for name, feature in features.items()]
    header = {
        **more,
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": [{"config_name": "default", "features": columns}],
    }
    return f"---\n{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---\n\n"
