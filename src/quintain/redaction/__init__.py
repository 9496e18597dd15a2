"""Secrets and personal data out of what is stored (`redact.py`): issuers' tokens, credentials by name or place, personal data."""
