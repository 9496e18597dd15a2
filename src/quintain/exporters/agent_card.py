"""Model card and Ollama Modelfile of an exported agent, from facts only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import yaml

from quintain.records.agent import Sampling
from quintain.records.jobs.handover import AGENT_FILE, AgentExport, Result
from quintain.records.wording import counted

_OLLAMA = frozenset(
    {
        "CohereForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "GemmaForCausalLM",
        "GptOssForCausalLM",
        "LlamaForCausalLM",
        "MixtralForCausalLM",
        "Olmo3ForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
    }
)
"""Architectures whose safetensors `ollama create` reads (LoadModelMetadata in convert/convert.go of ollama/ollama)."""


def model_card(handover: AgentExport) -> str:
    """Return `README.md`: YAML metadata for the Hugging Face Hub, followed by the same facts as text."""
    header = yaml.safe_dump(_header(handover), sort_keys=False, allow_unicode=True)
    return f"---\n{header}---\n\n" + "\n".join(_sections(handover)) + "\n"


def modelfile(handover: AgentExport, architecture: str) -> str | None:
    """Return the `Modelfile` for Ollama; None if Ollama cannot read the weights or the agent is not a policy.

    The template of safetensors is left to Ollama, which knows those of the families that it reads.
    """
    is_gguf = handover.format == "gguf"
    if not is_gguf and (handover.format != "merged" or handover.agent.role != "policy" or architecture not in _OLLAMA):
        return None
    lines = [
        f"# {handover.agent.id}, written by Quintain {handover.quintain}: ollama create {handover.agent.name.lower()} -f Modelfile"
    ]
    lines += [
        f"FROM ./{_gguf_name(handover)}" if is_gguf else "FROM .",
        *(f"PARAMETER {name} {value}" for name, value in _parameters(handover.agent.sampling)),
    ]
    lines += [f'PARAMETER stop "{end}"' for end in handover.template["end_tokens"] if '"' not in end]
    if (template := handover.template.get("ollama")) and '"""' not in template:
        lines.append(f'TEMPLATE """{template}"""')
    prompt = handover.agent.system_prompt
    if prompt is not None and '"""' in prompt:
        lines.append(
            f"# The system prompt has three quotes in a row, which cannot stand here: take it from {AGENT_FILE}."
        )
    elif prompt is not None:
        lines.append(f'SYSTEM """{prompt}"""')
    return "\n".join(lines) + "\n"


def _gguf_name(handover: AgentExport) -> str:
    return f"{handover.agent.name}-{handover.parity.stored_in}.gguf"


def _parameters(sampling: Sampling) -> Iterator[tuple[str, float]]:
    """Yield parameters that override Ollama's defaults (top_k 40, repeat penalty), which the agent does not use.

    The default length of a turn is Quintain's bound on episodes; nobody chose it for replies, which it would cut.
    """
    yield "temperature", sampling.temperature
    yield "top_p", sampling.top_p
    yield "top_k", sampling.top_k
    if sampling.min_p:
        yield "min_p", sampling.min_p
    yield "repeat_penalty", 1.0
    if sampling.max_new_tokens != Sampling().max_new_tokens:
        yield "num_predict", sampling.max_new_tokens


def _header(handover: AgentExport) -> dict[str, Any]:
    header: dict[str, Any] = {}
    if handover.base["source"] == "hub":
        header["base_model"] = handover.base["name"]
        if _methods(handover):
            header["base_model_relation"] = "adapter" if handover.format == "adapter" else "finetune"
    header["library_name"] = {"adapter": "peft", "gguf": "gguf"}.get(handover.format, "transformers")
    pipelines = {"policy": "text-generation", "retriever": "sentence-similarity"}
    header["pipeline_tag"] = pipelines.get(handover.agent.role, "text-classification")
    tags = ["quintain", "agent" if handover.agent.role == "policy" else handover.agent.role.replace("_", "-")]
    header["tags"] = [*tags, *(["lora"] if handover.agent.model.adapter else []), *_methods(handover)]
    if handover.provenance.datasets:
        header["datasets"] = [one.name for one in handover.provenance.datasets]
    rated = [one for one in handover.provenance.results if one.success_rate is not None]
    if rated:
        header["model-index"] = [{"name": handover.agent.id, "results": [_indexed(one) for one in rated]}]
    return header


def _methods(handover: AgentExport) -> list[str]:
    return list(dict.fromkeys(method for one in handover.provenance.ancestors for method in one.methods))


def _indexed(result: Result) -> dict[str, Any]:
    metric = {"type": "success_rate", "name": "Success rate", "value": result.success_rate}
    return {
        "task": {"type": "text-generation"},
        "dataset": {"type": result.environment, "name": result.environment, "split": result.split},
        "metrics": [metric],
    }


def _sections(handover: AgentExport) -> Iterator[str]:
    agent = handover.agent
    yield f"# {agent.name}, version {agent.version}"
    yield ""
    what = {
        "policy": "An agent",
        "reward_model": "A reward model",
        "step_model": "A step model",
        "retriever": "A retriever",
    }[agent.role]
    yield f"{what}, `{agent.id}`, handed over by Quintain {handover.quintain} as `{handover.format}`."
    if handover.base["source"] == "hub":
        revision = f" at revision `{handover.base['revision']}`" if handover.base["revision"] else ""
        yield f"Base model: `{handover.base['name']}`{revision}."
    elif agent.model.adapter is None and (ancestors := handover.provenance.ancestors[1:]):
        yield f"Base model: `{ancestors[-1].agent}`, all of whose weights were trained."
    else:
        yield f"Base model: `{handover.base['name']}` on the machine that wrote this."
    for note in handover.notes:
        yield f"Note: {note}."
    yield from ("", "## Training", "")
    yield from _training(handover)
    yield from ("", "## Results", "")
    yield from _results(handover)
    yield from ("", "## Use", "")
    yield from _use(handover)
    yield from ("", "## Checked", "")
    yield from _checked(handover)


def _training(handover: AgentExport) -> Iterator[str]:
    yield "| agent | method | learned from | job |"
    yield "|---|---|---|---|"
    for one in handover.provenance.ancestors:
        source = one.dataset_id or one.environment
        yield _row(one.agent, ", ".join(one.methods) or "not trained here", source or "", one.job_id or "")
    if handover.provenance.datasets:
        yield from ("", "| dataset | name | kind | rows |", "|---|---|---|---|")
        for dataset in handover.provenance.datasets:
            yield _row(dataset.dataset_id, dataset.name, dataset.kind, f"{dataset.rows:,}")
    if handover.provenance.trajectories:
        yield from ("", f"Its training data has {counted(handover.provenance.trajectories, 'run')} in all.")


def _results(handover: AgentExport) -> Iterator[str]:
    if handover.agent.held_out is not None:
        yield f"It met {handover.agent.held_out}."
    if not handover.provenance.results:
        yield "It has not been evaluated."
        return
    yield "Success rates with their 95 % intervals, as they stood when this was written."
    yield from (
        "",
        "| evaluation | environment | split | episodes | success | mean reward | loss |",
        "|---|---|---|---|---|---|---|",
    )
    for one in handover.provenance.results:
        rate = "" if one.success_rate is None else f"{one.success_rate:.3f}"
        if one.ci_low is not None and one.ci_high is not None:
            rate += f" ({one.ci_low:.3f} to {one.ci_high:.3f})"
        figures = ("" if value is None else f"{value:.4g}" for value in (one.mean_reward, one.loss))
        yield _row(one.evaluation_id, one.environment, one.split, str(one.n), rate, *figures)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"


def _use(handover: AgentExport) -> Iterator[str]:
    name = handover.agent.name
    if handover.format == "gguf":
        yield from ("```sh", f"llama-server -m {shlex.quote(_gguf_name(handover))} --jinja --port 8080", "```", "")
        yield f"Ollama: `ollama create {name.lower()} -f Modelfile`, then `ollama run {name.lower()}`."
        yield from ("", *_chat_example("http://127.0.0.1:8080", name), "")
        yield from _acting(handover)
        return
    model_class = handover.base.get("class", "AutoModelForCausalLM")
    load = [f"from transformers import {model_class}, AutoTokenizer", ""]
    if handover.format == "adapter":
        base, revision = handover.base["name"], handover.base.get("revision")
        pinned, option = (f", revision={json.dumps(revision)}", f" --revision {revision}") if revision else ("", "")
        load = ["from peft import PeftModel", *load]
        load.append(f"base = {model_class}.from_pretrained({json.dumps(base)}{pinned})")
        load.append('model = PeftModel.from_pretrained(base, "this-folder")')
        serve = f"vllm serve {shlex.quote(base)}{option} --enable-lora --lora-modules {name}=this-folder"
    else:
        load.append(f'model = {model_class}.from_pretrained("this-folder", dtype="auto")')
        serve = f"vllm serve this-folder --served-model-name {name}"
    yield from ("```python", *load, 'tokenizer = AutoTokenizer.from_pretrained("this-folder")', "```", "")
    if handover.agent.role == "retriever":
        yield 'It embeds texts and does not act: `SentenceTransformer("this-folder").encode(texts)` (mean of the last hidden states).'
        return
    if handover.agent.role != "policy":
        heads = "`value_head.safetensors`: a linear map (`weight`, `bias`) from the last hidden states to its numbers"
        yield f"It values runs and does not act; what it values by is in {heads}."
        return
    others = "; MLX: `mlx_lm.server --model this-folder`; llama.cpp: `convert_hf_to_gguf.py this-folder`"
    yield f"Serve it: `{serve}`{'' if handover.format == 'adapter' else others}."
    yield from ("", *_chat_example("http://127.0.0.1:8000", name), "")
    yield from _acting(handover)


def _chat_example(url: str, model: str) -> tuple[str, ...]:
    """Return lines of Markdown: a question to a server with the OpenAI interface."""
    question = {"model": model, "messages": [{"role": "user", "content": "What can you do?"}]}
    call = f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(question))}"
    return ("```sh", call, "```")


def _acting(handover: AgentExport) -> Iterator[str]:
    sampling = handover.agent.sampling
    yield (
        f"It acts at {sampling.summary}, at most {sampling.max_new_tokens} tokens a turn; "
        "servers that read no greedy decoding from `generation_config.json` need the temperature in each request."
    )
    prompt = "its own system prompt" if handover.agent.system_prompt is not None else "no system prompt of its own"
    style = {
        "tools": "the chat template's native tool calls",
        "react": "ReAct text (`Thought:`, `Action: tool {json}`)",
    }
    yield f"It has {prompt}; turns are written as {style[handover.template['style']]}. `{AGENT_FILE}` has the same data for programs."


def _checked(handover: AgentExport) -> Iterator[str]:
    parity = handover.parity
    if handover.format == "gguf":
        yield (
            f"llama.cpp ran this file: over {parity.tokens} tokens its log-probabilities differ from the agent's by "
            f"{parity.mean_difference:.3g} nats on average, {parity.max_difference:.3g} at most. Of the agent's greedy continuation it "
            f"writes {counted(parity.greedy_tokens, 'token')} alike; {parity.equal_ids} texts have equal ids, "
            f"{counted(parity.equal_renderings, 'conversation')} with tools the same prompt."
        )
        yield f"`{AGENT_FILE}` has the SHA-256 of every file."
        return
    yield (
        f"These files were read back and compared with the agent in {parity.compared_in}, their weights being {parity.stored_in}: over "
        f"{parity.tokens} tokens log-probabilities differ by at most {parity.max_difference:.3g} nats (mean {parity.mean_difference:.3g}, "
        f"allowed {parity.bound:g}, of tokens below 1/e that times -log p)."
    )
    tie = ", then two tokens tie within what rounding moves" if parity.greedy_tie else ""
    yield (
        f"Greedy decoding writes the same {counted(parity.greedy_tokens, 'token')}{tie}; the tokenizer gives equal ids for "
        f"{parity.equal_ids} texts, the chat template equal text for {parity.equal_renderings} conversations."
    )
    yield f"`{AGENT_FILE}` has the SHA-256 of every file."
