"""The launcher of Ray Jobs: each attempt is one submission to the cluster of `RAY_ADDRESS`.

Only Ray's public job client is used. Ray is imported at the first call, so a server without it pays nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from quintain.errors import InvalidInput, QuintainError, Unavailable
from quintain.jobs.launchers.contract import Attempt, ClusterOptions

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

_TIMEOUT_S = {"GET": 10.0, "POST": 30.0}
"""Time limits of one question to Ray and of one submission."""

_LOG_CHARACTERS = 20_000

_CREDENTIALS = re.compile(r"(?<=://)[^/]*@")
"""User and password in an address."""


class RayLauncher:
    """Submits attempts to Ray Jobs.

    Raises:
        InvalidInput: `RAY_ADDRESS` is not set (`no_ray_address`).
    """

    is_remote = True
    spans_machines = False
    poll_s = 1.0
    settle_s = 5.0

    def __init__(self, options: ClusterOptions) -> None:
        if not options.ray_address:
            raise InvalidInput(
                "expected the address of a Ray cluster in RAY_ADDRESS, got none; set it to that of the cluster's "
                "dashboard, such as http://10.0.0.1:8265",
                code="no_ray_address",
            )
        self._options = options
        self._address = options.ray_address

    def start(self, attempt: Attempt) -> None:
        """Submit the attempt. Ray refuses a second submission of the same name."""
        with self._reachable():
            client = self._client
            try:
                client.submit_job(
                    entrypoint=f"exec {shlex.join(attempt.command)}",
                    submission_id=attempt.name,
                    runtime_env={"env_vars": dict(attempt.environment)},
                    entrypoint_num_cpus=self._options.cpus,
                    entrypoint_num_gpus=self._options.gpus * attempt.devices or None,
                )
            except RuntimeError as error:
                raise OSError(f"Ray refused the job: {error}") from error

    def alive(self, attempt: Attempt) -> bool | None:
        """Whether Ray reports the submission as pending or running."""
        info = self._info(attempt)
        return None if info is None else not info.status.is_terminal()

    def cancel(self, attempt: Attempt) -> None:
        """Stop the submission: SIGTERM to its shim, SIGKILL some seconds later."""
        with self._reachable():
            client = self._client
            try:
                client.stop_job(attempt.name)
            except RuntimeError:  # unknown to this cluster
                pass

    def log(self, attempt: Attempt) -> str:
        """Return the end of the submission's log."""
        try:
            with self._reachable():
                return str(self._client.get_job_logs(attempt.name))[-_LOG_CHARACTERS:]
        except (Unavailable, RuntimeError):
            return ""

    def exit(self, attempt: Attempt) -> str:
        """Return Ray's status and message."""
        try:
            info = self._info(attempt)
        except Unavailable:
            return ""
        return "" if info is None else f"{info.status}: {info.message}"

    def _info(self, attempt: Attempt) -> Any | None:
        """Return Ray's details of a submission, or None if the cluster does not know it."""
        with self._reachable():
            client = self._client
            try:
                return client.get_job_info(attempt.name)
            except RuntimeError:
                # The client raises the same for an unknown id and a failed server; the list distinguishes them.
                return {details.submission_id: details for details in client.list_jobs()}.get(attempt.name)

    @cached_property
    def _client(self) -> JobSubmissionClient:
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError as error:
            raise InvalidInput(
                "expected the package ray for QUINTAIN_LAUNCHER=ray, got none; install quintain[cluster]",
                code="missing_extra",
            ) from error

        class Client(JobSubmissionClient):
            """The client with a time limit, without which a silent head would block the server."""

            def _do_request(self, method: str, *arguments: Any, **options: Any) -> Any:
                return super()._do_request(method, *arguments, **{"timeout": _TIMEOUT_S[method]} | options)

        return Client(self._address)

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            yield
        except QuintainError:
            raise
        except Exception as error:  # many types: of requests, of Ray's own protocol, of an invalid address
            if isinstance(error, OSError) and isinstance(error.__cause__, RuntimeError):
                raise
            address = _CREDENTIALS.sub("***@", self._address)
            reason = f"{type(error).__name__}: {error}".replace(self._address, address)[:300]
            raise Unavailable(
                f"expected an answer of Ray at {address}, got {reason}; check that RAY_ADDRESS is the URL of the cluster's "
                "dashboard, and that the cluster is up",
                code="launcher_unavailable",
            ) from error
