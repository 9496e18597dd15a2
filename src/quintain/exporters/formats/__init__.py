"""The formats, one module each with its `EXPORTER`."""
