"""Readers of interchange formats: ATIF, ADP, Harbor traces, Hugging Face session traces, and Quintain's own files."""
