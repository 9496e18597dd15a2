"""Artifacts outside the home folder: folders at fsspec URLs and repositories of the Hugging Face Hub."""
