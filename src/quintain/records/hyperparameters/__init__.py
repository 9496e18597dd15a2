"""Hyperparameters: one strict model a method, their defaults, and the names that other trainers give them."""
