"""Talks with a user: `quintain/conversation`, `quintain/engineering`, `quintain/advisory`, `quintain/discussion`."""

from quintain.environments.conversation.environment import Advisory, Conversation, Discussion, Engineering

__all__ = ["Advisory", "Conversation", "Discussion", "Engineering"]
