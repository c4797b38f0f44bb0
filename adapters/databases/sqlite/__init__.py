"""Queues on SQLite."""
