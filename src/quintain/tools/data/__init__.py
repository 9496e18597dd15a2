"""Tools for data: record, import, search, export, preview, and lineage."""
