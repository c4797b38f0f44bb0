"""A database of this process: how its SQL runs, and what all its queues share."""
