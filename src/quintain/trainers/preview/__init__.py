"""The X-ray of a dataset: what training makes of each row, what falls off, and what is wrong with it."""
