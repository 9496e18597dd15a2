"""Local models that act: batched episodes behind KV caches."""
