"""Acting in a job: rollouts of online training and of collections, and reports about them."""
