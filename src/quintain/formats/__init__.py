"""In and out: chat messages to trajectories, trajectories to training rows, splits and manifests."""
