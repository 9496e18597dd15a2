"""Actors: processes that play the episodes of a job, each with a copy of the model. See `pool`."""
