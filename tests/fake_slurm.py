"""Commands of Slurm that run batch scripts on this machine: `sbatch`, `squeue`, `scancel` and `srun` are copies of this file.

State lies beside the copies: one JSON file a job, `hold` while jobs must wait in the queue, `down` while the controller does
not answer, `full` while it takes no job, `broken` while nodes fail before they run a script. A script runs in the background
with the exported variables only, as on a node.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "scancel", "srun")
ROOT = Path(sys.argv[0]).parent
COMMAND = Path(sys.argv[0]).name


def install(folder: Path) -> str:
    """Write the commands into a new folder. Return the value of PATH with which they are found."""
    folder.mkdir()
    program = f"#!{sys.executable} -IS\n{Path(__file__).read_text(encoding='utf-8')}"
    for command in COMMANDS:
        (folder / command).write_text(program, encoding="utf-8")
        (folder / command).chmod(0o700)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def main(arguments: list[str]) -> None:
    if (ROOT / "down").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    if COMMAND == "srun":
        sys.exit(srun(arguments))
    options = dict(text.removeprefix("--").partition("=")[::2] for text in arguments if text.startswith("--"))
    if COMMAND == "sbatch":
        sbatch(options, Path(arguments[-1]))
    elif COMMAND == "squeue":
        jobs = [job for job in map(read, ROOT.glob("*.json")) if job["name"] == options.get("name", job["name"])]
        form = options["format"].replace("%T", "{state}").replace("%j", "{name}").replace("%r", "Resources")
        sys.stdout.writelines(f"{form.format(**job)}\n" for job in jobs)
    else:
        for path in ROOT.glob("*.json"):
            if read(path)["name"] == options["name"]:
                scancel(path)


def sbatch(options: dict[str, str], script: Path) -> None:
    if options.get("partition") == "missing":
        sys.exit("sbatch: error: invalid partition specified: missing")
    if (ROOT / "full").exists():
        sys.exit("sbatch: error: Batch job submission failed: Job violates accounting/QOS policy")
    assert script.read_text().startswith("#!")
    number = 1 + len(list(ROOT.glob("*.json")))
    path = ROOT / f"{number}.json"
    write(path, {"name": options["job-name"], "state": "PENDING", "pid": 0, "options": options})
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()
    if os.fork():
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    while (ROOT / "hold").exists() and read(path)["state"] == "PENDING":
        time.sleep(0.02)
    if (ROOT / "broken").exists():
        write(path, {**read(path), "state": "NODE_FAIL"})
    if read(path)["state"] != "PENDING":
        return
    environment = {name: os.environ[name] for name in options["export"].split(",") if name in os.environ}
    environment |= {"SLURM_JOB_ID": str(number), "SLURMD_NODENAME": "127.0.0.1"}
    with open(options["output"].replace("%%", "%"), "ab") as output:
        process = subprocess.Popen(
            ["sh", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            cwd=options["chdir"],
            start_new_session=True,
        )
        write(path, {**read(path), "state": "RUNNING", "pid": process.pid})
        code = process.wait()
    cancelled = read(path)["state"] == "COMPLETING"
    write(path, {**read(path), "state": "CANCELLED" if cancelled else "COMPLETED" if code == 0 else "FAILED"})


def srun(arguments: list[str]) -> int:
    """Run a command once for each task, all on this machine."""
    count = next(int(text.partition("=")[2]) for text in arguments if text.startswith("--ntasks="))
    command = [text for text in arguments if not text.startswith("--")]
    tasks = [subprocess.Popen(command, env={**os.environ, "SLURM_PROCID": str(number)}) for number in range(count)]
    return max(task.wait() for task in tasks)


def scancel(path: Path) -> None:
    job = read(path)
    if job["state"] == "PENDING":
        write(path, {**job, "state": "CANCELLED"})
    elif job["state"] == "RUNNING":
        write(path, {**job, "state": "COMPLETING"})
        os.killpg(job["pid"], signal.SIGTERM)


def read(path: Path) -> dict[str, object]:
    return json.loads(path.read_text())


def write(path: Path, job: dict[str, object]) -> None:
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(job))
    aside.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
