"""Queues without their model, for other processes: bulk loads, scans, archives, checkpoints."""
