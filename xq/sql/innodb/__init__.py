"""Queues on MariaDB and MySQL: what both share."""
