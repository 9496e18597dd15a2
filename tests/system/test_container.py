"""The container image and the compose file: built where a docker daemon runs, checked against the program everywhere."""

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from quintain.cli.main import command
from quintain.settings import Settings

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments, continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined)]


def last(name: str) -> str:
    return [rest for found, rest in instructions() if found == name][-1]


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "compose.yaml").read_text()))


def test_the_image_runs_this_program_as_an_ordinary_user() -> None:
    program, *arguments = json.loads(last("ENTRYPOINT"))[2:] + json.loads(last("CMD"))
    assert program == "quintain"
    with command(arguments[0]).make_context(None, arguments[1:]) as context:  # unknown options raise
        assert (context.params["transport"], context.params["host"], context.params["no_token"]) == (
            "http",
            "0.0.0.0",
            False,
        )
        port = context.params["port"]
    assert last("EXPOSE") == str(port)
    assert f"127.0.0.1:{port}/healthz" in last("HEALTHCHECK")
    assert int(last("USER").split(":")[0]) > 0
    variables = dict(part.split("=", 1) for part in shlex.split(last("ENV")))
    assert Path(variables["QUINTAIN_HOME"]) == Path(last("VOLUME"))


def test_the_image_is_built_from_files_that_the_context_has() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"  # keys, homes and histories of the folder stay outside
    kept = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = [rest.split()[:-1] for name, rest in instructions() if name == "COPY" and "--from" not in rest]
    assert {source for sources in copied for source in sources} == kept
    assert all((ROOT / name).exists() for name in kept)
    assert not any(fnmatch.fnmatch(".git", name) for name in kept)
    project = (ROOT / "pyproject.toml").read_text()
    extras = next(rest for name, rest in instructions() if name == "ARG" and rest.startswith("EXTRAS="))
    assert all(re.search(rf"^{extra} = \[", project, re.M) for extra in extras.partition("=")[2].split(","))


def test_the_compose_file_starts_the_database_first_and_publishes_to_this_machine_alone() -> None:
    services = compose()["services"]
    server, database = services["quintain"], services["database"]
    assert server["depends_on"]["database"]["condition"] == "service_healthy"
    assert "pg_isready" in " ".join(database["healthcheck"]["test"])
    assert [port.rpartition(":")[0] for port in server["ports"]] == ["127.0.0.1:8765"]
    assert "ports" not in database
    assert server["cap_drop"] == ["ALL"]
    names = {f"QUINTAIN_{name.upper()}" for name in Settings.model_fields}
    assert set(server["environment"]) <= names
    passwords = [server["environment"]["QUINTAIN_DATABASE_URL"], database["environment"]["POSTGRES_PASSWORD"]]
    assert all("${QUINTAIN_DATABASE_PASSWORD" in text for text in passwords)  # never in the file
    grace = int(server["stop_grace_period"].removesuffix("s"))
    assert grace > Settings.model_fields["http_grace_s"].default
    assert set(compose()["volumes"]) == {
        mount.split(":")[0] for service in services.values() for mount in service["volumes"]
    }


def test_hadolint_finds_nothing() -> None:
    linter = shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_image_is_built_and_answers_its_health_check() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False, timeout=60).returncode:
        pytest.skip("no docker daemon runs here")
    subprocess.run([docker, "build", "--tag", "quintain:test", str(ROOT)], check=True)
    run = [docker, "run", "--detach", "--rm", "--publish", "127.0.0.1::8765", "--health-interval=1s", "quintain:test"]
    container = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    try:
        state = [docker, "inspect", "--format", "{{.State.Health.Status}}", container]
        while (found := subprocess.run(state, check=True, capture_output=True, text=True).stdout.strip()) == "starting":
            pass
        assert found == "healthy"
        where = subprocess.run([docker, "port", container, "8765"], check=True, capture_output=True, text=True)
        with urllib.request.urlopen(f"http://{where.stdout.split()[0]}/healthz", timeout=10) as answer:
            assert json.load(answer)["status"] == "ok"
    finally:
        subprocess.run([docker, "stop", container], check=True, capture_output=True)
