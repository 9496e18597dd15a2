"""Judging without a model in sight: rubrics, the blind view of a run, questions, and the strict reading of answers."""
