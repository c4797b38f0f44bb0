"""Queues on MariaDB."""
