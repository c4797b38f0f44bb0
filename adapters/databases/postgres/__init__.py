"""Queues on PostgreSQL."""
