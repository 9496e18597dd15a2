"""Judging by requests of the web page: with the token alone, as the person's own words, and open again after a reload."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from quintain.store.store import open_store
from served_page import served
from trajectory_runs import NOW, run


def test_verdicts_of_the_page_need_the_token_and_are_the_person_s_own_words(home: Path) -> None:
    store = open_store(f"sqlite:///{home / 'quintain.db'}")
    (stored,) = store.trajectories.add_many([run()], NOW)
    with served(home) as site:
        wanted = {"judge": "person", "rater": "Ada", "limit": 3}
        assert site.call("get_judging_batch", wanted).status == 401
        batch = site.call("get_judging_batch", wanted, **site.authorization).json
        answer = {"item_id": batch["items"][0]["item_id"], "scores": {"task_completion": 1, "process": 0.5}}
        verdict = {"batch_id": batch["batch_id"], "scores": [{**answer, "rationale": "Fine."}]}
        assert site.call("submit_scores", verdict).status == 401
        assert site.call("submit_scores", verdict, **site.authorization).json["accepted"] == 1
        again = site.ask(f"/api/resource?uri={quote('judging://' + batch['batch_id'], safe='')}").json
        unknown = site.ask("/api/resource?uri=judging%3A%2F%2Fbatch-nothing")
    (score,) = store.scores.of_trajectory(stored.id)
    store.close()
    assert score.rater == "person:Ada"
    assert score.feedback == "Fine."
    assert again["answered"] == {
        answer["item_id"]: {"scores": answer["scores"], "rationale": "Fine.", "skipped": False}
    }
    assert again["items"] == batch["items"]
    assert unknown.status == 404
