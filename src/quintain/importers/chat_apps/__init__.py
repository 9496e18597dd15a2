"""Readers of the exports of chat applications."""
