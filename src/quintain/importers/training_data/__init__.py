"""Readers of rows of training data: chats, instructions, preferences, prompts and completions."""
