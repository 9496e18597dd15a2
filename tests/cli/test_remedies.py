"""Advice of the tools, said in commands."""

from __future__ import annotations

import pytest

from quintain.cli.remedies import in_commands


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (
            "more: get_judging_batch(judge='person', limit=..., rater='ann').",
            "more: quintain judge --judge person --rater ann.",
        ),
        (
            "export_dataset(kind='dpo', pairs='recorded') makes pairs",
            "quintain export dpo NAME --pairs recorded makes pairs",
        ),
        ("score_trajectories(scorer='people', ...) reads", "quintain score people reads"),
        ("get_lineage(id='traj-1', forget=true)", "quintain lineage traj-1 --forget"),
        ("search_trajectories lists them", "search_trajectories (a tool of quintain serve) lists them"),
        (
            "Run evaluate_agent(agent='agent:b@1', environment='test/env', split='held_out', n_tasks=4, seed=3), then",
            "Run quintain evaluate agent:b@1 --environment test/env --split held_out --n-tasks 4 --seed 3, then",
        ),
        ("compare_agents(agents=['a@1', 'b@2'])", "quintain compare a@1 b@2"),
        ("get_job(job_id='job-1', wait_s=30)", "quintain jobs watch job-1"),
        (
            "start_training(method='dpo', dataset_id='d', hyperparameters={'lora': {}})",
            "quintain train --method dpo --dataset d",
        ),
        ("start_training(method='evolve', model='a')", "quintain evolve a"),
        ("preview_dataset(dataset_id='d', model='starter')", "quintain preview d --model starter"),
        ("list_library(kind='agents') shows", "list_library (a tool of quintain serve) shows"),
        ("record_preferences, or pairs='mined'", "quintain prefer, or pairs='mined'"),
    ],
)
def test_calls_of_tools_become_commands(said: str, heard: str) -> None:
    assert in_commands(said) == heard
