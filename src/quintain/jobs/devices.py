"""Processes and devices of jobs: which GPUs this machine has, how many a job needs, and which it gets.

No list of assigned devices is kept: the launch files of running jobs are that list, so the end of a job releases its
devices, however it ends.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from quintain.records.hyperparameters.methods import TrainingConfig
from quintain.records.jobs.job import EvolveSpec, JobSpec, RecipeSpec, TrainSpec
from quintain.records.jobs.recipe import TrainStage

VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that shows a process only some devices."""


@cache
def detect_devices() -> tuple[str, ...]:
    """Return the ids of the NVIDIA GPUs of this machine, and the instances of those divided by MIG in their place.

    Empty if there are none, or torch is built without CUDA.
    """
    found: list[list[str]] = []
    for line in _nvidia_smi("--list-gpus"):
        device = line.rpartition("UUID: ")[2].rstrip(")")
        if device.startswith("MIG") and found:
            found[-1].append(device)
        else:
            found.append([device])
    return tuple(device for gpu, *instances in found for device in instances or [gpu])


def query_gpus(field: str) -> tuple[str, ...]:
    """Return a field (`nvidia-smi --help-query-gpu`) of each NVIDIA GPU; empty as `detect_devices`, or if the driver fails."""
    return _nvidia_smi(f"--query-gpu={field}", "--format=csv,noheader,nounits")


def _nvidia_smi(*arguments: str) -> tuple[str, ...]:
    program = shutil.which("nvidia-smi")
    try:
        if program is None or version("torch").endswith("+cpu"):
            return ()
        output = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError, PackageNotFoundError):
        return ()
    return tuple(line.strip() for line in output.stdout.splitlines() if line.strip())


def widest_training(spec: JobSpec) -> TrainingConfig:
    """Return the settings of a job's training with the most processes; the defaults, of one process, without a training."""
    configs: list[TrainingConfig] = []
    if isinstance(spec, TrainSpec):
        configs = [spec.config]
    elif isinstance(spec, RecipeSpec):
        configs = [stage.config for stage in spec.stages if isinstance(stage, TrainStage)]
    elif isinstance(spec, EvolveSpec):
        configs = [spec.training]
    return max(configs, key=lambda config: config.processes, default=TrainingConfig())


def devices_needed(spec: JobSpec) -> int:
    """Return the number of devices on one machine that a job can use: one a process of a training, or a local actor."""
    parts = [
        spec,
        getattr(spec, "config", None),
        *(getattr(stage, "config", None) for stage in getattr(spec, "stages", ())),
    ]
    has_actors_here = getattr(spec, "actor_backend", None) == "local"
    actors = max(getattr(part, "actors", 1) for part in parts) if has_actors_here else 1
    return max(widest_training(spec).processes_per_machine, actors)


def assign_devices(
    n: int, devices: Sequence[str], slots: int, taken: Iterable[Sequence[str]]
) -> tuple[str, ...] | None:
    """Return the devices of a job that needs `n`, or has all where there are fewer; None if it has to wait for other jobs.

    A device serves one job at a time, unless there are more slots than devices: then slots / devices, rounded up. `taken` are the
    devices of each running job.
    """
    load = Counter(device for job in taken for device in job)
    capacity = -(-slots // len(devices)) if devices else 0
    free = sorted((device for device in devices if load[device] < capacity), key=lambda device: load[device])
    needed = min(n, len(devices))
    return tuple(free[:needed]) if len(free) >= needed else None
