"""The worth of a run: pure scorers. A scorer looks at one trajectory and calls no model."""
