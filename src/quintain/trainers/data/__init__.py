"""From dataset rows to training examples: rendering, chunking, selection and order."""
