"""Queues without their model, for other processes: bulk puts, scans, archives, checkpoints."""
