"""Policies of local models: batched episodes with KV caches."""
