"""Judging by the connected assistant or the person in front of it: batches, forms, answers, corrections."""
