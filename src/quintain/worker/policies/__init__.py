"""Policies of a job: local models, scripted experts, and models behind endpoints."""
