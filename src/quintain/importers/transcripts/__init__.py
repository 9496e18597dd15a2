"""Reading of transcripts: messages, content parts and usage of any vendor, gathered into the steps of a trajectory."""
