"""Workers: programs that take tasks, call a function with each, and ack a task when the function returns."""
