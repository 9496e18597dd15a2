"""Tools for jobs: follow, list, cancel, resume and plot."""
