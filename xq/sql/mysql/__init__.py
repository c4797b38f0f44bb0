"""Queues on MySQL."""
