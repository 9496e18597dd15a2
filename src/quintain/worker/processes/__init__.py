"""The processes of a job: one attempt, the ranks of a training, and what watches them."""
