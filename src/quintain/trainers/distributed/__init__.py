"""A run over several processes: data-parallel, sharded, on one machine or several."""
