"""Read messages, content parts and usage of any vendor and assemble the steps of a trajectory."""
