"""A run over several processes (SPMD): replicated or sharded, on one machine or several."""
