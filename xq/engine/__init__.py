"""One queue on one database: put, take, finish, timers, install, statistics."""
