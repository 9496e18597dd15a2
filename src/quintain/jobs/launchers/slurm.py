"""The launcher of Slurm: each attempt is one batch job, through `sbatch`, `squeue` and `scancel`."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from quintain.errors import InvalidInput, Unavailable
from quintain.jobs.directory import write_atomically
from quintain.jobs.launchers.contract import Attempt, ClusterOptions

_TIMEOUT_S = 60.0
"""Time limit of one command of Slurm."""

_NOTICE_S = 60
"""Seconds before the time limit at which Slurm asks the batch script to stop. Its supervisor does, with a checkpoint."""

_INHERITED = ("HOME", "LANG", "PATH")
"""Variables of the server that a batch job always gets."""

_ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
"""Job states in which nothing of a job runs any more. Source: squeue(1), JOB STATE CODES."""


class SlurmLauncher:
    """Submits attempts as batch jobs, which find each other by name: no id has to be remembered."""

    is_remote = True
    spans_machines = True
    poll_s = 5.0
    settle_s = 10.0

    def __init__(self, options: ClusterOptions) -> None:
        self._options = options
        self._states: dict[str, str] = {}
        self._read_at = -self.poll_s

    def start(self, attempt: Attempt) -> None:
        """Write the batch script beside the job and submit it.

        Raises:
            Unavailable: The controller does not answer.
            OSError: sbatch refuses the job, although the controller answers.
        """
        script = _write_scripts(attempt)
        names = sorted({*_INHERITED, *attempt.environment})
        output = str(attempt.folder / "launcher.log").replace("%", "%%")
        gpus = self._options.gpus * attempt.devices
        argv = [
            "sbatch",
            "--parsable",
            f"--signal=B:TERM@{_NOTICE_S}",
            *([f"--nodes={attempt.machines}", "--ntasks-per-node=1"] if attempt.machines > 1 else []),
            *([f"--cpus-per-task={self._options.cpus}"] if self._options.cpus else []),
            *([f"--gpus-per-node={gpus}"] if gpus else []),
            *self._options.slurm_arguments,
            # Last, for of repeated options the last one counts: a batch job with another name is never found.
            f"--job-name={attempt.name}",
            f"--output={output}",
            "--open-mode=append",
            "--no-requeue",
            f"--export={','.join(names)}",
            f"--chdir={attempt.folder}",
            str(script),
        ]
        done = _run(argv, {**os.environ, **attempt.environment})
        if done.returncode:
            self._refresh()  # raises Unavailable if the controller does not answer at all
            raise OSError(f"sbatch refused the job: {done.stderr.strip()[-500:]}")
        self._states[attempt.name] = "PENDING"

    def alive(self, attempt: Attempt) -> bool | None:
        """Whether the batch job is in the queue and has not ended; one call of squeue answers for all jobs."""
        if time.monotonic() - self._read_at >= self.poll_s:
            self._refresh()
        state = self._states.get(attempt.name)
        return None if state is None else state not in _ENDED

    def cancel(self, attempt: Attempt) -> None:
        """Remove the batch job from the queue, or end it."""
        _run(["scancel", f"--name={attempt.name}"], os.environ)

    def log(self, attempt: Attempt) -> str:
        """Return the end of the batch job's output; of one that waits, its state and why it waits."""
        try:
            output = (attempt.folder / "launcher.log").read_bytes()[-20_000:].decode("utf-8", "replace")
        except OSError:
            output = ""
        return output or self._reason(attempt)

    def exit(self, attempt: Attempt) -> str:
        """Return the batch job's last known state."""
        return self._states.get(attempt.name, "")

    def _reason(self, attempt: Attempt) -> str:
        try:
            done = _run(["squeue", "--noheader", f"--name={attempt.name}", "--format=%T: %r"], os.environ)
        except Unavailable:
            return ""
        return f"squeue: {done.stdout.strip()}" if done.stdout.strip() and not done.returncode else ""

    def _refresh(self) -> None:
        """Read the states of this user's batch jobs, including those that ended lately."""
        done = _run(["squeue", "--me", "--states=all", "--noheader", "--format=%T %j"], os.environ)
        if done.returncode:
            raise Unavailable(
                f"expected the list of jobs of squeue, got exit code {done.returncode}: {done.stderr.strip()[-300:]}; "
                "check that the Slurm controller is up",
                code="launcher_unavailable",
            )
        pairs = (line.split(maxsplit=1) for line in done.stdout.splitlines())
        self._states = {pair[1].strip(): pair[0] for pair in pairs if len(pair) == 2}
        self._read_at = time.monotonic()


def _write_scripts(attempt: Attempt) -> Path:
    """Write the batch script, and that of the machines beside the first one. Return the path of the former."""
    script, others = attempt.folder / "launch.sh", attempt.folder / "launch-others.sh"
    command = shlex.join(attempt.command)
    if attempt.machines == 1:
        write_atomically(script, f"#!/bin/sh\nexec {command}\n".encode())
        return script
    n = attempt.machines - 1
    place = '--master-addr="$1" --node-rank="$((SLURM_PROCID + 1))"'
    ranks = f"{shlex.join(attempt.rank_launcher)} {place} {shlex.join(attempt.rank_program)}"
    write_atomically(others, f"#!/bin/sh\nexec {ranks}\n".encode())
    batch = f"""\
#!/bin/sh
trap 'stopped=yes; [ -z "$job" ] || kill -TERM "$job"' TERM
first="${{SLURMD_NODENAME:-$(hostname)}}"
[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
srun --nodes={n} --ntasks={n} --ntasks-per-node=1 --exclude="$first" sh {shlex.quote(str(others))} "$first" &
others=$!
{command} "$first:{attempt.port}" &
job=$!
[ -z "$stopped" ] || kill -TERM "$job"
wait "$job"
code=$?
while kill -0 "$job" 2>/dev/null; do wait "$job"; code=$?; done
kill "$others" 2>/dev/null
wait
exit $code
"""
    write_atomically(script, batch.encode())
    return script


def _run(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=dict(environment), cwd="/"
        )
    except FileNotFoundError as error:
        raise InvalidInput(
            f"expected the command {argv[0]} for QUINTAIN_LAUNCHER=slurm, got none on PATH; run the server on a machine "
            "from which jobs can be submitted",
            code="no_slurm",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(
            f"expected an answer of {argv[0]} within {_TIMEOUT_S:.0f} s, got none; check that the Slurm controller is up",
            code="launcher_unavailable",
        ) from error
