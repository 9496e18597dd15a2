"""A server that samples token ids with a real model and LoRA adapters from disk, by the routes of vLLM that Quintain uses.

`python tests/sampling_server.py MODEL_FOLDER [ADDRESS]` serves a folder, and prints its URL. Requests are sampled token by token, and
share the model: a pause takes effect between two tokens, and a request that it meets goes on with the weights that are loaded then.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch
from peft import set_peft_model_state_dict

from quintain.records.agent import ModelRef
from quintain.trainers.acting.decoding import Decoder
from quintain.trainers.acting.kv_cache import Row
from quintain.trainers.acting.sampling import Draws, TokenLimits, pick
from quintain.trainers.models.adapters import adapter_tensors, require_adapter, with_adapter
from quintain.trainers.models.loading import load_model


class Refusal(Exception):
    """An answer with another status than 200."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Sampler:
    """A model with adapters by name, and what a test lets go wrong with it."""

    folder: Path
    served_name: str = "base"
    max_lora_rank: int = 16
    dev_mode: bool = True
    """Whether there are routes to pause, resume and label."""
    gives_ids: bool = True
    gives_versions: bool = True
    resets: bool = True
    """Whether it can drop its cached keys."""
    stays_paused: bool = False
    """Answer 503 to requests for samples, as while another client has paused it with mode `abort`."""
    dies_at: str = ""
    """Path of the request at which it dies without an answer, the second time that it comes."""
    dies_after: int | None = None
    """Number of requests after which it dies without an answer; None: never."""
    heat: float = 1.0
    """Temperature of its distributions, which its log-probs are of."""
    draw_heat: float = 1.0
    """Further temperature of its draws alone."""
    shift: int = 0
    """Added to all ids of an answer, as by a server with another tokenizer."""
    at_token: Callable[[int], None] = lambda place: None
    """Called before each token of a request, outside of the lock."""
    calls: list[str] = field(default_factory=list)
    """Paths of all requests, in order."""
    version: str = "default"
    loaded: str | None = None
    adapter: str | None = None

    def __post_init__(self) -> None:
        loaded = load_model(ModelRef(source="folder", path=str(self.folder)))
        self.base, self.tuned, self.context = loaded.model.eval(), None, loaded.context_tokens
        self.decoder = Decoder.of(self.base, self.context)
        self.lock = threading.Lock()
        self.running = threading.Condition(self.lock)
        self.paused = False
        self.prefixes: dict[tuple[str, tuple[int, ...]], Row] = {}
        """Model and prompt without its last token -> keys; they are of older weights until the cache is reset."""

    def restore(self, **faults: Any) -> None:
        """Mend everything, except for the given faults, and forget the requests."""
        sound: dict[str, Any] = {"max_lora_rank": 16, "dev_mode": True, "gives_ids": True, "shift": 0, "resets": True}
        sound |= {"heat": 1.0, "draw_heat": 1.0}
        for name, value in (
            sound | {"stays_paused": False, "dies_at": "", "dies_after": None, "paused": False} | faults
        ).items():
            setattr(self, name, value)
        self.calls.clear()

    def dies_now(self, path: str) -> bool:
        """Whether it dies at this request, which is among the calls already."""
        is_late = self.dies_after is not None and len(self.calls) > self.dies_after
        return is_late or (path == self.dies_at and self.calls.count(path) > 1)

    def answer(self, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> Any:
        """Return the body of an answer.

        Raises:
            Refusal: The answer has another status than 200.
        """
        if path == "/v1/completions":
            return self.complete(body)
        if path == "/v1/load_lora_adapter":
            return self.load(body)
        if path == "/v1/unload_lora_adapter":
            self.adapter = None
            return "Success"
        if not self.dev_mode:
            raise Refusal(404, "Not Found")
        with self.running:
            if path == "/pause":
                assert query["mode"] == ["keep"]
                self.paused = True
            elif path == "/resume":
                self.paused = False
                self.running.notify_all()
            elif path == "/update_weight_version":
                self.version = body["new_version"]
            elif path == "/reset_prefix_cache":
                self.prefixes.clear()
                return {"success": self.resets}
            else:
                raise Refusal(404, "Not Found")
        return {}

    def load(self, body: dict[str, Any]) -> str:
        """Load an adapter; only one is kept."""
        name, folder = body["lora_name"], Path(body["lora_path"])
        if name == self.adapter and not body.get("load_inplace"):
            raise Refusal(400, f"The lora adapter '{name}' has already been loaded.")
        try:
            require_adapter(folder, self.folder)
        except Exception as error:
            raise Refusal(404, f"No adapter found for {folder}") from error
        rank = json.loads((folder / "adapter_config.json").read_bytes())["r"]
        if rank > self.max_lora_rank:
            raise Refusal(500, f"LoRA rank {rank} is greater than max_lora_rank {self.max_lora_rank}.")
        with self.lock, torch.random.fork_rng():
            if self.tuned is None:
                self.tuned = with_adapter(self.base, folder).eval()
            else:
                set_peft_model_state_dict(self.tuned, adapter_tensors(folder))
            self.adapter, self.loaded = name, str(folder)
        return f"Success: LoRA adapter '{name}' added successfully."

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """Continue token ids."""
        if body["model"] not in (self.served_name, self.adapter):
            raise Refusal(404, f"The model `{body['model']}` does not exist.")
        prompt = body["prompt"]
        if len(prompt) + body["max_tokens"] > self.context:
            raise Refusal(400, f"This model's maximum context length is {self.context} tokens.")
        if self.stays_paused:
            raise Refusal(503, "generation is paused")
        tokens, logprobs, versions = self.sample(body)
        finish = "stop" if tokens[-1] in body["stop_token_ids"] else "length"
        moved = [token + self.shift for token in tokens]
        names = [f"token_id:{token}" for token in moved]
        choice: dict[str, Any] = {
            "text": "",
            "finish_reason": finish,
            "logprobs": {"tokens": names, "token_logprobs": logprobs},
        }
        if self.gives_ids:
            choice |= {"prompt_token_ids": [token + self.shift for token in prompt], "token_ids": moved}
        if self.gives_versions:
            choice["weight_versions"] = spans(versions)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)}
        return {"model": body["model"], "choices": [choice], "usage": usage}

    @torch.no_grad()
    def sample(self, body: dict[str, Any]) -> tuple[list[int], list[float], list[str]]:
        """Return sampled tokens with their log-probs at temperature 1, and the label of the weights that sampled each."""
        ids, prefix = list(body["prompt"]), tuple(body["prompt"][:-1])
        row: Row | None = None
        stream = torch.Generator().manual_seed(body["seed"])
        uniform = torch.rand(body["max_tokens"], generator=stream, dtype=torch.float64)
        heat = torch.tensor([body["temperature"] * self.draw_heat], dtype=torch.float64)
        limits = TokenLimits(body["top_p"], body["top_k"], body["min_p"])
        tokens, logprobs, versions = list[int](), list[float](), list[str]()
        for place, drawn in enumerate(uniform):
            self.at_token(place)
            with self.running:
                self.running.wait_for(lambda: not self.paused)
                if versions and versions[-1] != self.version:
                    row = None  # its keys are of the old weights
                with self._weights(body["model"]):
                    batch, logits = self.decoder.read([row or self._read(body["model"], prefix)], [ids])
                row = batch.row(0)
                token, logprob = pick(logits / self.heat, Draws(drawn[None], heat), limits)
                versions.append(self.version)
            tokens.append(int(token))
            logprobs.append(float(logprob))
            ids.append(int(token))
            if int(token) in body["stop_token_ids"]:
                break
        return tokens, logprobs, versions

    def _weights(self, name: str) -> AbstractContextManager[None]:
        """Return a context in which the model is the base, or the adapter of that name."""
        is_base = self.tuned is not None and name == self.served_name
        return self.tuned.disable_adapter() if is_base else nullcontext()

    def _read(self, name: str, prefix: tuple[int, ...]) -> Row:
        if (name, prefix) not in self.prefixes:
            batch, _ = self.decoder.read([Row()], [prefix])
            self.prefixes[name, prefix] = batch.row(0)
        return self.prefixes[name, prefix]


def spans(versions: list[str]) -> list[dict[str, Any]]:
    """Return one span for each run of equal labels."""
    starts = [place for place, label in enumerate(versions) if place == 0 or label != versions[place - 1]]
    ends = [*starts[1:], len(versions)]
    return [{"version": versions[a], "start": a, "end": b} for a, b in zip(starts, ends, strict=True)]


@contextmanager
def serving(sampler: Sampler, port: int = 0) -> Iterator[str]:
    """Serve, and yield the base URL; port 0 is any free one."""
    server = _server(sampler, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        with sampler.running:
            sampler.paused = False
            sampler.running.notify_all()
        server.shutdown()
        server.server_close()
        thread.join()


def _server(sampler: Sampler, port: int = 0, host: str = "127.0.0.1") -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            url = urlsplit(self.path)
            sampler.calls.append(url.path)
            if sampler.dies_now(url.path):
                self.server.socket.close()
                self.close_connection = True
                return
            status, found = 200, None
            try:
                found = sampler.answer(url.path, parse_qs(url.query), body)
            except Refusal as error:
                status, found = error.status, {"error": {"message": str(error)}}
            except Exception as error:
                status, found = 500, {"error": {"message": f"{type(error).__name__}: {error}"}}
            content = json.dumps(found).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:  # the client has gone
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Keep the log empty."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    return server


if __name__ == "__main__":
    torch.set_num_threads(1)
    address = sys.argv[2] if sys.argv[2:] else "127.0.0.1"
    process = _server(Sampler(Path(sys.argv[1])), host=address)
    sys.stdout.write(f"http://{address}:{process.server_address[1]}/v1\n")
    sys.stdout.flush()
    process.serve_forever()
