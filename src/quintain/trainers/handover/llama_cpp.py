"""A GGUF file run by llama.cpp (the package xllamacpp) and asked over its HTTP interface on this machine."""

from __future__ import annotations

import importlib
import json
import secrets
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from quintain.errors import Unavailable

_TIMEOUT_S = 600.0
_FORCED = 1000.0
"""Logit added to a token that has to be sampled. The reported log-prob is that of the model, without it."""


@dataclass(frozen=True)
class LlamaCpp:
    """A running file. Every method raises RuntimeError if llama.cpp refuses the request."""

    url: str
    key: str

    def token_ids(self, text: str, *, is_prompt: bool = False) -> list[int]:
        """Return the ids of a text, with special tokens where it spells them; of a prompt with the bos token, if the file has it."""
        body = {"content": text, "add_special": is_prompt, "parse_special": True}
        return list(self._post("/tokenize", body)["tokens"])

    def logprob(self, ids: Sequence[int], token: int) -> float | None:
        """Return the log-prob of a token after a prompt, in nats.

        None: llama.cpp reports none for a token that ends within a character.
        """
        body = {
            "prompt": list(ids),
            "n_predict": 1,
            "temperature": -1,  # greedy, with log-probs of the whole vocabulary
            "n_probs": 1,
            "logit_bias": [[token, _FORCED]],
            "cache_prompt": True,
        }
        found = self._post("/completion", body).get("completion_probabilities")
        return float(found[0]["logprob"]) if found and found[0]["id"] == token else None

    def greedy(self, ids: Sequence[int], tokens: int) -> list[int]:
        """Return the most likely continuation, without the token that ends it."""
        body = {"prompt": list(ids), "n_predict": tokens, "temperature": 0, "return_tokens": True, "cache_prompt": True}
        return list(self._post("/completion", body)["tokens"])

    def prompt(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> str:
        """Return a chat as llama.cpp renders it by the file's template, with a generation prompt."""
        body = {"messages": list(messages), **({"tools": list(tools)} if tools else {})}
        return str(self._post("/apply-template", body)["prompt"])

    def wait_until_it_serves(self) -> None:
        """Wait until the server works through its queue. A server that is closed earlier waits forever."""
        self._ask("/slots", None)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask(path, json.dumps(body).encode())
        return answer

    def _ask(self, path: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=_TIMEOUT_S) as response:
                return json.load(response)
        except OSError as error:
            raise RuntimeError(f"llama.cpp refused {path}: {error}") from error


@contextmanager
def model_served(file: Path, *, context_tokens: int) -> Iterator[LlamaCpp]:
    """Load a file into this process and serve it on the loopback interface, protected by a random key.

    Raises:
        Unavailable: xllamacpp is not installed (`missing_extra`).
        RuntimeError: llama.cpp does not load the file; its reason is in the log.
    """
    try:
        xllamacpp = importlib.import_module("xllamacpp")
    except ImportError:
        raise Unavailable(
            "expected xllamacpp, which runs the file, got none; pip install 'quintain[gguf]'", code="missing_extra"
        ) from None
    options = xllamacpp.CommonParams()
    options.model.path = str(file)
    options.n_ctx, options.n_parallel, options.n_gpu_layers = context_tokens, 1, 0
    options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    options.warmup, options.ui, options.verbosity, options.swa_full = False, False, 1, True  # verbosity 1: errors
    # As many threads as the job has: two that wait for each other by spinning are slower on one core.
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = torch.get_num_threads()
    options.hostnames = ["127.0.0.1"]
    key = secrets.token_urlsafe()
    options.api_keys = [key]
    server = xllamacpp.Server(options)
    try:
        model = LlamaCpp(server.listening_address, key)
        model.wait_until_it_serves()
        yield model
    finally:
        del server
