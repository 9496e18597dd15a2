"""Export as GGUF: the file is run by llama.cpp and computes what the agent computes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scripts.training_paths import ARCHITECTURES as TINY
from transformers import AutoConfig, AutoModelForCausalLM

from quintain.errors import Conflict, InvalidInput
from quintain.records.agent import Agent, ModelRef
from quintain.records.jobs.handover import Ancestor, ExportAgentSpec, GgufType, Provenance
from quintain.records.protocols import Message
from quintain.trainers.handover import gguf_file
from quintain.trainers.handover.gguf_weights import ARCHITECTURES
from quintain.trainers.handover.llama_cpp import model_served
from quintain.trainers.models.loading import load_model, save_model
from quintain.trainers.rendering.renderer import Renderer
from quintain.trainers.rendering.template_probe import PROBE_TOOLS
from quintain.worker.job_kinds.export_agent import run
from tiny_models import CHATML_TOOLS, tiny_tokenizer, with_bos_first

pytest.importorskip("xllamacpp", reason="llama.cpp runs the files")

_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
_WINDOWS = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 32, "num_hidden_layers": 4}
_SPECIAL: dict[str, dict[str, Any]] = {
    "gemma2": _WINDOWS,
    "gemma3_text": {**_WINDOWS, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "phi3": {"sliding_window": None},
    "qwen3": {"head_dim": 32},
    "smollm3": {"num_hidden_layers": 4},
}


@pytest.fixture(autouse=True)
def _fewer_tokens(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Each compared token is a request to llama.cpp; all of them are asked for once, of each architecture."""
    if "model_type" not in request.fixturenames:
        monkeypatch.setattr(gguf_file, "_COMPARED", 16)


def saved_model(folder: Path, model_type: str, *, scale: float = 0.12, tokenizer: Any = None, **fields: Any) -> Agent:
    """Save a random model far from its initial values, with a tokenizer, and return an agent of it."""
    tokenizer = tokenizer or tiny_tokenizer()
    tokens = {
        "vocab_size": len(tokenizer),
        "pad_token_id": 0,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": None,
    }
    config = AutoConfig.for_model(model_type, **{**_SIZES, **tokens, **_SPECIAL.get(model_type, {}), **fields})
    chance = torch.Generator().manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=chance))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    ref = ModelRef(source="folder", path=str(folder))
    return Agent(id="agent:clerk@1", name="clerk", version=1, model=ref, system_prompt="Be brief.")


def export(agent: Agent, destination: Path, kind: GgufType) -> dict[str, Any]:
    spec = ExportAgentSpec(
        agent=agent,
        format="gguf",
        gguf_type=kind,
        destination=str(destination),
        provenance=Provenance(ancestors=(Ancestor(agent="agent:clerk@1"),)),
    )
    reporter: Any = SimpleNamespace(phase=lambda name: None, warn=lambda code, text: None, should_stop=lambda: False)
    return run(spec, destination.parent / "job-1", reporter).report


@pytest.mark.parametrize("model_type", sorted(ARCHITECTURES))
def test_llama_cpp_computes_the_log_probs_of_each_written_architecture(tmp_path: Path, model_type: str) -> None:
    report = export(saved_model(tmp_path / "model", model_type), tmp_path / "out", "f16")
    assert report["files"] == ["Modelfile", "README.md", "agent.json", "clerk-f16.gguf"]
    parity = report["parity"]
    assert parity["stored_in"] == "f16"
    assert parity["tokens"] > 60
    assert parity["mean_difference"] < 0.01
    assert parity["equal_renderings"] == 2


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_theta": 500_000.0,
}
SCALED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3": ("llama", LLAMA3),
    "linear": ("llama", {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}),
    "yarn": (
        "qwen2",
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10_000.0},
    ),
    "longrope": (
        "phi3",
        {
            "rope_type": "longrope",
            "short_factor": [1.0, 1.25, 1.5, 1.75, 2.0, 2.25],
            "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 300,
            "rope_theta": 10_000.0,
        },
    ),
}


@pytest.mark.parametrize("kind", SCALED)
def test_rotary_scaling_is_in_the_file_and_read_from_it(tmp_path: Path, kind: str) -> None:
    model_type, rope = SCALED[kind]
    agent = saved_model(tmp_path / "model", model_type, rope_parameters=rope, max_position_embeddings=16_384)
    assert export(agent, tmp_path / "out", "f16")["parity"]["mean_difference"] < 0.02
    file = ModelRef(source="gguf", path=str(tmp_path / "out" / "clerk-f16.gguf"))
    ids = torch.arange(400)[None] % 90 + 5
    original, read = (load_model(ref).model for ref in (agent.model, file))
    for name, stated in original.config.rope_parameters.items():
        assert read.config.rope_parameters[name] == pytest.approx(stated), name
    with torch.inference_mode():
        torch.testing.assert_close(read(input_ids=ids).logits, original(input_ids=ids).logits, atol=0.05, rtol=0.02)


def test_frequencies_of_a_file_that_are_not_those_of_llama_3_are_refused(tmp_path: Path) -> None:
    rope = {**LLAMA3, "original_max_position_embeddings": 32}
    export(saved_model(tmp_path / "model", "llama", rope_parameters=rope), tmp_path / "out", "f16")
    with pytest.raises(InvalidInput, match=r"unsupported_model.*frequencies of Llama 3\.1 to 3\.3"):
        load_model(ModelRef(source="gguf", path=str(tmp_path / "out" / "clerk-f16.gguf")))


@pytest.mark.parametrize("template", [None, CHATML_TOOLS], ids=["base", "a template without bos"])
def test_a_prompt_of_the_file_begins_with_bos_once_where_the_agents_does(tmp_path: Path, template: str | None) -> None:
    """Both llama.cpp and Ollama put it before a prompt if the file says so, Ollama also before a template that writes it."""
    agent = saved_model(tmp_path / "model", "qwen2", tokenizer=with_bos_first(tiny_tokenizer(template)))
    report = export(agent, tmp_path / "out", "f16")
    assert report["parity"]["equal_renderings"] == 2
    assert not any("renders" in note for note in report["notes"])
    modelfile = (tmp_path / "out" / "Modelfile").read_text()
    assert "<|endoftext|>" not in modelfile.partition("TEMPLATE")[2]
    with model_served(tmp_path / "out" / "clerk-f16.gguf", context_tokens=64) as served:
        begun = served.token_ids("a", is_prompt=True) != served.token_ids("a")
    assert begun == (template is None)


def test_a_pad_token_without_an_embedding_stays_out_of_the_file(tmp_path: Path) -> None:
    agent = saved_model(tmp_path / "model", "qwen2")
    tokenizer = tiny_tokenizer()
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    tokenizer.save_pretrained(tmp_path / "model")
    assert export(agent, tmp_path / "out", "f16")["parity"]["equal_renderings"] == 2


def test_of_a_model_that_reads_images_the_part_for_text_is_written(tmp_path: Path) -> None:
    (architecture,) = [one for one in TINY if one.title == "Mistral 3"]
    tokenizer = tiny_tokenizer()
    architecture.build(vocab_size=len(tokenizer), hidden_size=64).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    ref = ModelRef(source="folder", path=str(tmp_path / "model"))
    report = export(Agent(id="agent:clerk@1", name="clerk", version=1, model=ref), tmp_path / "out", "f16")
    assert report["parity"]["mean_difference"] < 0.01
    assert "the one for images" in report["notes"][0]


def test_the_starter_runs_although_its_attention_has_an_output_bias_that_qwen_3_lacks_there(tmp_path: Path) -> None:
    starter = Agent(id="agent:clerk@1", name="clerk", version=1, model=ModelRef(source="starter", path="starter"))
    parity = export(starter, tmp_path / "out", "f16")["parity"]
    assert parity["mean_difference"] < 0.01
    assert parity["greedy_tokens"] == 16
    file = ModelRef(source="gguf", path=str(tmp_path / "out" / "clerk-f16.gguf"))
    ids = torch.arange(40)[None]
    with torch.inference_mode():
        original, read = (load_model(ref).model(input_ids=ids).logits for ref in (starter.model, file))
    torch.testing.assert_close(read, original, atol=0.1, rtol=0.01)


def test_quantised_files_run_and_the_modelfile_has_template_stop_and_sampling(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1}
    agent = saved_model(tmp_path / "model", "qwen2", scale=0.05, **sizes)
    reports = {kind: export(agent, tmp_path / kind, kind) for kind in ("q8_0", "q4_k_m")}
    differences = [reports[kind]["parity"]["mean_difference"] for kind in ("q8_0", "q4_k_m")]
    assert 0.001 < differences[0] < differences[1] < 0.5
    for report in reports.values():
        assert 0 < report["parity"]["bounded"] < report["parity"]["bound"]
    assert reports["q4_k_m"]["bytes"] < 0.75 * reports["q8_0"]["bytes"]
    modelfile = (tmp_path / "q8_0" / "Modelfile").read_text()
    assert "FROM ./clerk-q8_0.gguf\n" in modelfile
    assert 'PARAMETER stop "<|im_end|>"\n' in modelfile
    assert "PARAMETER temperature" in modelfile
    assert '{{ if eq .Role "system" }}{{ "<|im_start|>system\\n" }}{{ .Content }}{{ "<|im_end|>\\n" }}' in modelfile
    assert modelfile.endswith('SYSTEM """Be brief."""\n')


def test_the_file_writes_the_tool_call_that_its_agent_has_learnt_and_a_cut_one_is_refused(tmp_path: Path) -> None:
    sizes = {"num_hidden_layers": 1, "max_position_embeddings": 1024}
    agent = saved_model(tmp_path / "model", "qwen2", scale=0.0, **sizes)
    loaded = load_model(agent.model, train=True)
    renderer = Renderer.of(loaded.tokenizer)
    prompt = renderer.opening([Message(role="user", content="Mango?")], PROBE_TOOLS)
    turn = '<tool_call>\n{"name": "probe_tool", "arguments": {"text": "mango", "n": 3}}\n</tool_call><|im_end|>'
    ids = torch.tensor([prompt + loaded.tokenizer.encode(turn)])
    labels = ids.clone()
    labels[:, : len(prompt)] = -100
    optimizer = torch.optim.Adam(loaded.model.parameters(), lr=0.006)
    loss = torch.tensor(torch.inf)
    for _ in range(300):
        optimizer.zero_grad()
        loss = loaded.model(input_ids=ids, labels=labels).loss
        if loss < 0.005:
            break
        loss.backward()
        optimizer.step()
    assert loss < 0.005, "the model has learnt the turn by heart"
    save_model(loaded.model, loaded.tokenizer, tmp_path / "trained")
    trained = agent.model_copy(update={"model": ModelRef(source="folder", path=str(tmp_path / "trained"))})
    export(trained, tmp_path / "out", "f16")
    file = tmp_path / "out" / "clerk-f16.gguf"
    with model_served(file, context_tokens=600) as served:
        written = served.greedy(prompt, 60)
    (action,) = renderer.parse(renderer.decode(written), PROBE_TOOLS).actions
    assert (action.tool, action.args) == ("probe_tool", {"text": "mango", "n": 3})
    for _ in range(5):  # llama.cpp waited for ever for a server that was closed before its queue ran
        with model_served(file, context_tokens=64):
            pass
    (tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:-4096])
    with pytest.raises(RuntimeError), model_served(tmp_path / "cut.gguf", context_tokens=64):
        pass


def test_a_model_that_gguf_has_no_place_for_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"expected a model of type gemma2.* got gpt_neox.*convert_hf_to_gguf"):
        export(saved_model(tmp_path / "neox", "gpt_neox", num_key_value_heads=None), tmp_path / "out", "f16")
    scaled = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0}
    with pytest.raises(
        InvalidInput, match=r"expected rotary embeddings that are plain or scaled by linear.*got dynamic"
    ):
        export(saved_model(tmp_path / "scaled", "llama", rope_parameters=scaled), tmp_path / "out", "f16")
    assert not (tmp_path / "out").exists()


def test_a_file_that_computes_something_else_is_removed(tmp_path: Path) -> None:
    # llama.cpp scales Gemma's attention by the size of a head and has no key for another scale.
    agent = saved_model(tmp_path / "model", "gemma3_text", query_pre_attn_scalar=400)
    with pytest.raises(Conflict, match=r"log-probs l differ by") as refused:
        export(agent, tmp_path / "out", "f16")
    assert refused.value.code == "parity_failed"
    assert not (tmp_path / "out").exists()
