"""Write docs/reference/training-settings.md from the records: `python -m scripts.training_settings`."""

from __future__ import annotations

import textwrap
from pathlib import Path

from quintain.records.hyperparameters.foreign_batches import ACCUMULATION
from quintain.records.hyperparameters.foreign_settings import RENAMED
from quintain.records.hyperparameters.setting_switches import PRECISIONS
from quintain.tools.training.methods import describe_methods

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "training-settings.md"

_HEAD = """\
# Training settings

Every setting of every training method, with type, default, bounds and meaning, and the names of other trainers.
Generated from the records by `python -m scripts.training_settings`; `guide://methods/{method}` shows one method.

Pass settings as `hyperparameters`. A dot leads into an object: `lora.rank` is `{"lora": {"rank": 8}}`.

"""

_NAMES = """\
## Names of other trainers

These names are understood wherever settings are read, and mean the same. A switch that is off wins over the settings
beside it. Two names of one setting with different values are refused, and so is what cannot be honoured
(`push_to_hub: true`, `mask_observations: false`, ...), with the reason and the remedy. torchtune's blocks `optimizer` and
`lr_scheduler` (`{_component_: torch.optim.AdamW, lr: 2e-5}`) are read; other blocks are answered with the settings in them.

Schedulers of transformers: `cosine_with_min_lr` with its floor (`min_lr_rate`, or `min_lr` beside a learning rate, also in
`lr_scheduler_kwargs`), `cosine_with_restarts` (`num_cycles` is `cycles`), `warmup_stable_decay` (`num_decay_steps`,
`decay_type`), `inverse_sqrt`, `constant_with_warmup` and `polynomial` of power 1. `reduce_lr_on_plateau` and `greedy` are
refused: the rate depends on the step alone, so that a resumed run ends the same.

Paged optimizers compute the same as `adamw` and `adamw_8bit`, which keep the moments on the GPU.

| name | setting |
|---|---|
"""


def page() -> str:
    """Return the page: shared settings, the settings of each method, and the names of other trainers."""
    shared, *methods = describe_methods()
    parts = [_HEAD, "## Shared settings\n\n", *_table(shared["hyperparameters"])]
    for about in methods:
        parts += [f"\n## `{about['method']}`\n\n", f"{textwrap.fill(about['summary'], 118)}\n\n"]
        own = about["hyperparameters"]
        parts += _table(own) if own else ["It has the shared settings alone.\n"]
    parts += ["\n", _NAMES]
    parts += [f"| `{name}` | {', '.join(f'`{path}`' for path in paths)} |\n" for name, paths in sorted(RENAMED.items())]
    parts += [
        f"| `{name}` | `precision: {value}`; all given switches off: `fp32` |\n" for name, value in PRECISIONS.items()
    ]
    parts += [f"| `{name}` | `batch_size`, multiplied |\n" for name in ACCUMULATION]
    return "".join(parts)


def _table(settings: dict[str, str]) -> list[str]:
    rows = ["| setting | type, default, bounds | meaning |\n", "|---|---|---|\n"]
    for name, line in settings.items():
        domain, _, meaning = line.partition(": ")
        rows.append(f"| `{name}` | {domain.replace('|', 'or')} | {meaning.replace('|', chr(92) + '|')} |\n")
    return rows


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
