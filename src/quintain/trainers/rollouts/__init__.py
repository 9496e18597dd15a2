"""Rollouts as training data: who sampled them, what they are worth, and the advantages of their tokens."""
