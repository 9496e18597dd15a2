"""Tools as methods, generated from the catalog."""
