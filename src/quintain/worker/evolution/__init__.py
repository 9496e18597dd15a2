"""Job kind `evolve`: rounds of exploration, training and evaluation."""
