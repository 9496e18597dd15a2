"""Export of an agent's files for other programs, checked against the agent."""
