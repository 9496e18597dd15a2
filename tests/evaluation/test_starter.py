from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import quintain
from quintain.environments.inventory import Inventory
from quintain.environments.inventory.scripted_policy import Expert
from quintain.evaluation.episodes import Episode, EpisodePlan, EpisodeSettings, run_episodes
from quintain.records.agent import Agent, ModelRef, Sampling
from quintain.records.protocols import Policy
from quintain.records.trajectory import AgentInfo
from quintain.trainers.acting.policy import open_policy
from quintain.trainers.models.loading import LoadedModel, load_model
from quintain.trainers.rendering.renderer import Renderer

FOLDER = Path(quintain.__file__).parent / "starter"
STARTER = ModelRef(source="starter", path="starter")


@pytest.fixture(scope="module")
def starter() -> LoadedModel:
    return load_model(STARTER)


def played(policy: Policy, split: str, n: int) -> list[Episode]:
    source = Inventory()
    settings = EpisodeSettings(seed=0, max_turns=None, concurrency=n, agent=AgentInfo(name="starter"))
    return list(run_episodes(source, policy, [EpisodePlan(task) for task in source.tasks(split, n, seed=5)], settings))


def test_the_shipped_files_are_the_ones_that_were_summed() -> None:
    sums = dict(reversed(line.split("  ")) for line in (FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines())
    assert set(sums) == {path.name for path in FOLDER.iterdir()} - {"SHA256SUMS"}
    assert {"model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"} <= set(sums)
    for name, expected in sums.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == expected, name
    assert (FOLDER / "model.safetensors").stat().st_size <= 3_000_000


def test_its_template_speaks_native_tool_calls_and_only_ever_appends(starter: LoadedModel) -> None:
    renderer = Renderer.of(starter.tokenizer)
    assert (renderer.style, renderer.appendable, renderer.warnings) == ("tools", True, ())
    for episode in played(Expert(), "train", 4):
        rows = renderer.render(episode.trajectory, 4096).rows
        assert len(rows) == 1
        text = renderer.decode(rows[0].token_ids)
        assert text.startswith("<|im_start|>system\nYou answer questions about a warehouse.")
        assert '<tools>\n{"type": "function", "function": {"name": "search"' in text
        assert '<tool_call>\n{"name": "search", "arguments": {"query": "' in text
        assert len(rows[0].token_ids) < 700


def test_it_is_small_and_its_tokenizer_keeps_any_text_and_does_not_tear_common_text(starter: LoadedModel) -> None:
    """Numbers are read digit by digit."""
    assert 500_000 <= sum(p.numel() for p in starter.model.parameters()) <= 1_500_000
    assert starter.context_tokens >= 4096
    for text, at_most in (
        (json.dumps({"city": "Paris", "date": "2026-01-31", "unit": "celsius"}), 36),
        ("The user asked for the weather, and then for a list of hotels near the station.", 36),
        ("ünïcödé 漢字 \t \x00", 40),
    ):
        ids = starter.tokenizer.encode(text)
        assert starter.tokenizer.decode(ids) == text
        assert len(ids) <= at_most
    assert [starter.tokenizer.decode([i]) for i in starter.tokenizer.encode("K2026")] == ["K", "2", "0", "2", "6"]


def test_it_solves_some_held_out_tasks_and_leaves_room_to_learn() -> None:
    """25 to 45 % are wanted; on 32 tasks a rate of 35 % has a standard error of 8 points."""
    agent = Agent(name="starter", model=STARTER)
    results = [e.result for e in played(open_policy(agent, Sampling(max_new_tokens=96)), "held_out", 32)]
    assert 0.15 <= sum(result.success is True for result in results) / 32 <= 0.60
    assert all(result.error is None for result in results)
