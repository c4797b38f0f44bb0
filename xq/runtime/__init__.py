"""What a process does by itself: the maintenance thread, waiting calls, workers."""
