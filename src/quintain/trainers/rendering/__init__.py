"""How a trajectory becomes tokens and text becomes actions again: one way for training and acting alike."""
