"""What a run was worth: pure scorers. A scorer looks at one trajectory and calls no model."""
