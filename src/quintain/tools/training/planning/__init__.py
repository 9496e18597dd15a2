"""Planning: which method, which settings, will it fit, how long."""
