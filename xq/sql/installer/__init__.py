"""Installing a queue: what is created, in which steps, and whether it is there."""
