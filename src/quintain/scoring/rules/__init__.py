"""The scorer `rules`: what can be said of a run's steps without a judge. One module a rule; `scorer` weighs them."""

from quintain.scoring.rules.scorer import RulesScorer

__all__ = ["RulesScorer"]
