"""Writers of other trainers' and viewers' formats: one small module a format behind one protocol (`protocol.py`)."""
