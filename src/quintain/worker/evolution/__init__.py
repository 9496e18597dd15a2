"""The job kind `evolve`: rounds of exploring, training and measuring."""
