"""One queue on one database: put, take, moves of named tasks, timers, statistics."""
