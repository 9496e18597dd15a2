"""Trajectories to tokens and text to actions, shared by training and acting."""
