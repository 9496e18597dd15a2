"""Launchers: where the attempts of jobs run. One contract, with this machine, Ray Jobs and Slurm behind it."""
