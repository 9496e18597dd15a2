"""Writers of other trainers' and viewers' formats: one small module a format, with its `EXPORTER` (`protocol.py`)."""
