"""Readers of what agent frameworks save: message histories, states and traces of their own."""
