"""`quintain/tools-1k`: the catalogue, the retriever and its figures, needs and their splits, both modes, verdicts."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from playing import act, play, start, text_of
from quintain.environments.registry import task_source
from quintain.environments.tools_1k import ThousandTools
from quintain.environments.tools_1k.catalogue import CATEGORIES, FAMILY, VERBS, Need, build_need, catalogue
from quintain.environments.tools_1k.environment import DirectEpisode
from quintain.environments.tools_1k.retriever import Retriever, ranking_metrics
from quintain.errors import InvalidInput
from quintain.records.trajectory import Action, Task

TASK = "tools-1k/train/mail/hard/00003"


def test_there_are_a_thousand_tools_and_no_two_are_alike() -> None:
    tools = list(catalogue().tools.values())
    assert len(tools) == len({tool.name for tool in tools}) == len({tool.description for tool in tools}) == 1000
    assert Counter(tool.category for tool in tools) == dict.fromkeys(CATEGORIES, 50)
    assert sum(tool.held_out for tool in tools) == 200
    assert catalogue() is catalogue()


def test_no_two_words_mean_the_same_thing_and_one_word_does_not_mean_two() -> None:
    things = [name.replace("_", " ") for category in CATEGORIES.values() for name in category.objects]
    others = [other for category in CATEGORIES.values() for other in category.objects.values()]
    phrases = [phrase for name, verb in VERBS.items() for phrase in (name, verb.train, verb.held_out)]
    assert len({*things, *others}) == 400
    assert len(set(phrases)) == len(phrases) == 30


def test_scores_are_those_of_bm25_by_hand() -> None:
    """Three texts of 2, 2 and 5 words, mean 3; k1 = 1.5, b = 0.75.

    "lamp" stands in two of three: idf = ln(1 + 1.5 / 2.5) = 0.470004. In a text of 2 words the norm is
    1.5 * (0.25 + 0.75 * 2 / 3) = 1.125, so its score there is 0.470004 * 2.5 / (1 + 1.125) = 0.552946.
    In the text of 5 words it stands twice: 1.5 * (0.25 + 0.75 * 5 / 3) = 2.25 and 0.470004 * 2 * 2.5 / (2 + 2.25) = 0.552946.
    """
    found = Retriever(["red lamp", "blue chair", "lamp lamp table tree house"]).scored("a lamp, the lamps!")
    assert [place for place, _ in found] == [0, 2]
    for _, score in found:
        assert math.isclose(score, 0.470003629 * 2.5 / 2.125, rel_tol=1e-8)


def test_figures_of_a_ranking_by_hand() -> None:
    """The relevant ones stand at ranks 2 and 6 of 7, out of three relevant ones: 1 of 5 and 2 of 10 slots, first at rank 2.

    Gains: 1 / log2(3) at rank 2 and 1 / log2(7) at rank 6, of at most 1 + 1 / log2(3) + 1/2 for three at the top.
    """
    best = 1 + 1 / math.log2(3) + 1 / 2
    found = ranking_metrics(list("axbcdyz"), frozenset("xyw"), ks=(1, 5, 10))
    expected = {
        1: (0, 0, 0, 0),
        5: (1, 1 / 3, 1 / 5, 1 / math.log2(3) / best),
        10: (1, 2 / 3, 2 / 10, (1 / math.log2(3) + 1 / math.log2(7)) / best),
    }
    names = ("top_k_accuracy", "recall", "precision", "ndcg")
    figures = {
        f"{name}@{k}": value for k, values in expected.items() for name, value in zip(names, values, strict=True)
    }
    assert found == pytest.approx({**figures, "mrr": 1 / 2})
    assert set(ranking_metrics([], frozenset("x"), ks=(1,)).values()) == {0}


def test_no_tool_is_asked_for_in_both_splits() -> None:
    asked = {
        split: {build_need(FAMILY.parse(task.id)).tool.name for task in ThousandTools().tasks(split, 1000, 2)}
        for split in ("train", "held_out")
    }
    assert not asked["train"] & asked["held_out"]
    assert len(asked["held_out"]) > 190
    assert {name.partition("_")[0] for name in asked["train"]} == {name.partition("_")[0] for name in asked["held_out"]}


def test_a_search_lists_tools_and_says_how_it_stands() -> None:
    need = build_need(FAMILY.parse(TASK))
    searching = start(TASK)
    step = act(searching, "search_tools", query=need.tool.description, k=3)
    assert text_of(step).splitlines()[0] == need.tool.line
    assert len(text_of(step).splitlines()) == 3
    assert (step.info["metrics"]["mrr"], step.info["metrics"]["searches"]) == (1.0, 1.0)
    assert text_of(act(searching, "search_tools", query="qqq")) == "No tool matches; try other words."


def test_the_figures_are_those_of_all_that_was_listed_in_the_order_it_was_first_seen() -> None:
    """Five other tools, then the right one first among five: it stands at rank 6."""
    need = build_need(FAMILY.parse(TASK))
    searching = start(TASK)
    act(searching, "search_tools", query="thermostat", k=5)
    act(searching, "search_tools", query=need.tool.description, k=5)
    step = act(searching, "call_tool", name=need.tool.name, args=need.args)
    assert (step.reward, step.terminated) == (1.0, True)
    metrics = step.info["metrics"]
    found = [metrics[name] for name in ("mrr", "recall@5", "recall@10", "precision@10")]
    assert found == [1 / 6, 0.0, 1.0, 0.1]
    assert (metrics["tool_correct"], metrics["arguments_correct"], metrics["searches"]) == (1.0, 1.0, 2.0)


@pytest.mark.parametrize(
    ("change", "reward"),
    [
        ({}, 1.0),
        ({"title": "  BLUE   Harbour "}, 1.0),
        ({"title": "blue harbor"}, 0.0),
        ({"reference": "AK-101"}, 0.0),
        ({"note": "by the way"}, 0.0),
    ],
)
def test_the_right_tool_counts_with_the_right_arguments_alone(change: dict[str, str], reward: float) -> None:
    """Who never searched has no figures of searching."""
    tool = catalogue().tools["update_song"]
    searching = start(TASK)
    searching._need = Need("Please update a song.", tool, {"reference": "AK-100", "title": "blue harbour"})
    step = act(searching, "call_tool", name="update_song", args={**searching._need.args, **change})
    assert (step.reward, step.terminated) == (reward, True)
    assert step.info["metrics"] == {"searches": 0.0, "tool_correct": 1.0, "arguments_correct": reward}
    other = act(start(TASK), "call_tool", name="delete_meeting", args={"reference": "AK-100"})
    assert (other.reward, other.terminated, other.info["metrics"]["tool_correct"]) == (0.0, True, 0.0)


def test_values_of_each_type_are_checked() -> None:
    tools = catalogue().tools.values()
    for kind, wrong in (("integer", True), ("integer", 1.5), ("number", "1"), ("boolean", 1)):
        tool, name = next((t, p.name) for t in tools for p in t.parameters if p.type == kind)
        assert f"must be of type {kind}" in str(tool.argument_error({name: wrong}))
    chosen = next(tool for tool in tools if any(parameter.name == "format" for parameter in tool.parameters))
    assert "valid: pdf, csv, json, html" in str(chosen.argument_error({"format": "docx"}))


def test_in_direct_mode_the_right_tool_is_among_k_real_ones() -> None:
    source = task_source("quintain/tools-1k?mode=direct&k=8")
    assert source.version == "1-direct8"
    places = Counter()
    for task in source.tasks("train", 80, 0):
        environment = source.make()
        environment.reset(task)
        names = [tool["function"]["name"] for tool in environment.tools]
        assert len(set(names)) == 8
        places[names.index(build_need(FAMILY.parse(task.id)).tool.name)] += 1
    assert set(places) == set(range(8))


def test_in_direct_mode_tools_that_were_not_offered_do_not_exist() -> None:
    direct = DirectEpisode(2)
    direct.reset(Task(id=TASK))
    need = build_need(FAMILY.parse(TASK))
    offered = ", ".join(tool["function"]["name"] for tool in direct.tools)
    assert direct.step([]).message == f"You called no tool. Call one of: {offered}."
    step = act(direct, "delete_meeting", reference="A")
    assert (step.observations[0].is_error, step.terminated) == (True, False)
    assert "call one of: " in text_of(step)
    assert "not valid JSON" in text_of(direct.step([Action(tool=need.tool.name, raw_args="{")]))
    done = direct.step([Action(tool=need.tool.name, args=need.args)])
    assert (done.reward, done.info["metrics"]) == (1.0, {"tool_correct": 1.0, "arguments_correct": 1.0})


def test_in_retrieved_mode_the_tools_are_those_that_the_retriever_ranks_first_for_the_prompt() -> None:
    """With BM25 hard needs do not have their tool among them, and then cannot be served; the ranking is measured."""
    source = task_source("quintain/tools-1k?mode=retrieved&k=5")
    assert source.version == "1-retrieved5"
    tasks = source.tasks("held_out", 40, 0)
    episodes = play(source, source.expert(tasks), tasks)
    recalled = sum(episode.result.metrics["recall@5"] for episode in episodes)
    assert 0 < recalled == sum(episode.result.success is True for episode in episodes) < 40
    environment = source.make()
    task = source.tasks("train", 1, 0)[0]
    prompt = environment.reset(task).message
    assert [tool["function"]["name"] for tool in environment.tools] == [t.name for t in catalogue().search(prompt, 5)]
    step = act(environment, "no_such_tool")
    assert step.info["metrics"].keys() >= {"recall@5", "ndcg@5", "mrr"}
    assert "recall@10" not in step.info["metrics"], "what ranks behind the five is not known"


def test_options_are_checked() -> None:
    for wrong, message in (
        ("?mode=guess", "mode"),
        ("?mode=direct&k=1", "greater than or equal to 2"),
        ("?mode=direct&k=51", "less than or equal to 50"),
        ("?k=5", "in mode search, where the agent chooses k"),
        ("?mode=direct&retriever=finder", "where the right tool is always a candidate"),
    ):
        with pytest.raises(InvalidInput, match=message):
            task_source(f"quintain/tools-1k{wrong}")
