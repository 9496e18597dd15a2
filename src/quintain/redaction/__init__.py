"""Remove secrets and personal data: tokens of issuers, credentials by name or place, personal data."""
