"""An agent's files for other programs, and the proof that they are the agent."""
