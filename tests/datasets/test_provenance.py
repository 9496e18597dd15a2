"""Whose outputs a dataset holds, and what the policy makes of it."""

from __future__ import annotations

import pytest

from quintain.datasets.provenance import allowed_models, check_terms, find_restriction, plain_name, written_by
from quintain.errors import Refused
from quintain.records.trajectory import Actor, AgentInfo, Step, Trajectory
from quintain.settings import Settings

RESTRICTED_MODELS = {
    "Anthropic": """
        claude-sonnet-4-5-20250929 anthropic/claude-sonnet-4-5 openrouter/anthropic/claude-3.5-sonnet:beta
        us.anthropic.claude-3-5-sonnet-20241022-v2:0 bedrock/anthropic.claude-v2 vertex_ai/claude-3-5-sonnet@20240620
        arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-20250514-v1:0
        litellm_proxy/claude-opus-4-1 Claude-2
    """,
    "OpenAI": """
        openai/gpt-4o-2024-08-06 azure/gpt-4o gpt-35-turbo gpt-5.1-codex chatgpt-4o-latest o1 o3-mini o4-mini-2025-04-16
        openai:gpt-4.1 ft:gpt-4o-mini-2024-07-18:acme::9abc codex-mini-latest text-davinci-003
    """,
    "Google": "models/gemini-2.0-flash gemini/gemini-2.5-pro google/gemini-3-pro-preview",
    "xAI": "xai/grok-4-fast grok-code-fast-1 grok-2-1212",
}
OTHER_MODELS = """
    unknown openai/gpt-oss-120b openai-community/gpt2 gpt2-xl EleutherAI/gpt-neox-20b gpt4all-j google/gemma-3-27b-it
    xai-org/grok-1 meta-llama/Llama-3.1-70B-Instruct Qwen/Qwen3-Coder-480B mistralai/Mistral-7B-Instruct-v0.3 o1js
    deepseek/deepseek-chat umd-zhou-lab/claude2-alpaca-13B teknium/OpenHermes-2.5 AIDC-AI/Marco-o1 starter agent:helper@3
    moonshotai/kimi-k2
"""


@pytest.mark.parametrize("vendor", RESTRICTED_MODELS)
def test_names_as_logs_write_them_are_known(vendor: str) -> None:
    for model in RESTRICTED_MODELS[vendor].split():
        found = find_restriction(model)
        assert found is not None, model
        assert found.startswith(f"{vendor}'s terms restrict"), model


def test_open_weights_and_strangers_are_not_restricted() -> None:
    for model in (None, "", *OTHER_MODELS.split()):
        assert find_restriction(model) is None, model


def test_a_name_is_plain_without_its_route() -> None:
    assert plain_name("us.anthropic.claude-3-haiku-20240307-v1:0") == "claude-3-haiku-20240307-v1:0"
    assert plain_name("OpenRouter/OpenAI/GPT-4o") == "gpt-4o"
    assert plain_name("qwen2.5-coder:7b") == "qwen2.5-coder:7b"


def test_the_default_warns_once_a_vendor_and_names_models_and_steps() -> None:
    models = {"anthropic/claude-opus-4-1": 2, "claude-sonnet-4-5": 1, "gpt-4o": 1, "starter": 7}
    warnings = check_terms(models, Settings().model_terms)
    assert len(warnings) == 2
    assert "anthropic/claude-opus-4-1, claude-sonnet-4-5 wrote 3 steps" in warnings[0]
    assert "gpt-4o wrote 1 step of" in warnings[1]
    assert not any("starter" in warning for warning in warnings)


def test_allow_is_silent_and_so_is_a_dataset_of_open_models() -> None:
    assert check_terms({"gpt-4o": 1}, "allow") == ()
    assert check_terms({"starter": 1, "unknown": 5}, "warn") == ()
    assert check_terms({"starter": 1}, "block") == ()


def test_block_refuses_with_the_models_and_two_ways_out() -> None:
    with pytest.raises(Refused) as refused:
        check_terms({"gpt-4o": 1, "gemini-2.5-pro": 2, "starter": 4}, "block")
    assert refused.value.code == "model_terms"
    for word in ("gpt-4o", "gemini-2.5-pro", "source_models", "QUINTAIN_MODEL_TERMS"):
        assert word in refused.value.message
    assert "starter" not in refused.value.message


def _run(*models: str | None, agent: str | None = None, **last: object) -> Trajectory:
    steps = [Step(actor=Actor.AGENT, message="m", model=model) for model in models]
    steps[-1] = steps[-1].model_copy(update=last)
    return Trajectory(agent=AgentInfo(model=agent), steps=tuple(steps))


def test_the_step_names_its_model_before_the_agent_does() -> None:
    run = _run("gpt-4o", None, agent="starter")
    assert [written_by(step, run) for step in run.steps] == ["gpt-4o", "starter"]
    assert written_by(Step(actor=Actor.AGENT), _run(None)) == "unknown"


def test_a_run_is_allowed_when_every_step_to_train_on_is() -> None:
    mixed = _run("anthropic/claude-sonnet-4-5", "gpt-4o")
    assert allowed_models(mixed, ["claude-*", "gpt-4*"])
    assert not allowed_models(mixed, ["claude-*"])
    assert allowed_models(_run("anthropic/claude-sonnet-4-5", "gpt-4o", train=False), ["CLAUDE-*"])
    assert allowed_models(_run("Qwen/Qwen3-8B"), ["qwen/*"])
    assert allowed_models(_run(None), ["unknown"])


def test_a_pattern_with_an_exclamation_mark_excludes() -> None:
    assert allowed_models(_run("starter"), ["!claude-*", "!gpt-*"])
    assert not allowed_models(_run("anthropic/claude-2"), ["!claude-*"])
    assert not allowed_models(_run("gpt-4o"), ["gpt-*", "!gpt-4o"])
    assert not allowed_models(_run("starter"), ["gpt-*", "!gpt-4o"])
