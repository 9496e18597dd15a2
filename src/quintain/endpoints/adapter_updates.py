"""Updates of a LoRA adapter that a server samples with, by vLLM's routes.

The order is: pause and keep what is being sampled, load the adapter in place, drop cached keys of the old weights, label the new
ones, resume. `/v1/load_lora_adapter` needs `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`, the other routes `VLLM_SERVER_DEV_MODE=1`.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from quintain.endpoints.client import CommandAnswer, EndpointClient
from quintain.errors import Conflict, InvalidInput, QuintainError, Unavailable

_PAUSE = "/pause?mode=keep"
_RESET = "/reset_prefix_cache?reset_running_requests=true"
_LABEL = "/update_weight_version"
_RESUME = "/resume"
_LOAD = "load_lora_adapter"
_UNLOAD = "unload_lora_adapter"


class AdapterUpdates:
    """The adapter of one name on an endpoint's server."""

    def __init__(self, client: EndpointClient, name: str) -> None:
        """Name the adapter; nothing is sent yet.

        Args:
            client: Client of the endpoint.
            name: The adapter's name on the server, which requests give as their model.
        """
        self._client, self.name = client, name

    def load(self, folder: Path, version: str) -> None:
        """Let the server sample with the adapter of a folder from now on.

        Args:
            folder: The adapter's files, on a path that the server reads too.
            version: Label of the weights, which the server returns with the tokens that they sampled.

        Raises:
            InvalidInput: The server lacks a route (`no_weight_updates`) or refuses the adapter (`adapter_refused`).
            Conflict: The server keeps keys of the old weights (`stale_cache`).
            Unavailable: The server cannot be reached, or stays busy. It may be paused then; the next update resumes it.
        """
        self._require_route(_PAUSE, self._post(_PAUSE, {}))
        try:
            fields = {"lora_name": self.name, "lora_path": str(folder), "load_inplace": True}
            self._require_loaded(folder, self._post(_LOAD, fields))
            self._require_reset(self._post(_RESET, {}))
            self._post(_LABEL, {"new_version": version})  # servers without labels answer 404
        except (InvalidInput, Conflict):
            self._post(_RESUME, {})
            raise
        self._require_route(_RESUME, self._post(_RESUME, {}))

    def unload(self) -> None:
        """Remove the adapter from the server, if it can be reached."""
        try:
            self._post(_UNLOAD, {"lora_name": self.name})
        except QuintainError:
            return

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _post(self, path: str, fields: dict[str, object]) -> CommandAnswer:
        try:
            return self._client.command(path, fields)
        except Unavailable as error:
            raise Unavailable(
                f"{error.message} while its weights were updated ({path.partition('?')[0]}); start the server again, then resume "
                "the job",
                code=error.code,
            ) from None

    def _require_route(self, path: str, answer: CommandAnswer) -> None:
        if answer.status == HTTPStatus.OK:
            return
        raise InvalidInput(
            f"expected endpoint {self._client.endpoint.name!r} to take {path.partition('?')[0]}, got {answer.status} "
            f"({answer.message}); start vLLM with VLLM_SERVER_DEV_MODE=1, on a network that only the training reaches",
            code="no_weight_updates",
        )

    def _require_reset(self, answer: CommandAnswer) -> None:
        if answer.status == HTTPStatus.OK and not answer.succeeded:
            raise Conflict(
                f"expected endpoint {self._client.endpoint.name!r} to drop the cached keys of the old weights, got {answer.message}; "
                "stop other clients of the server, then resume the job",
                code="stale_cache",
            )
        self._require_route(_RESET, answer)

    def _require_loaded(self, folder: Path, answer: CommandAnswer) -> None:
        if answer.status == HTTPStatus.OK:
            return
        raise InvalidInput(
            f"expected endpoint {self._client.endpoint.name!r} to load the adapter in {folder}, got {answer.status} "
            f"({answer.message}); start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and a --max-lora-rank of at "
            "least lora.rank, and set `adapters` in its profile to a folder that it reads under the same path",
            code="adapter_refused",
        )
