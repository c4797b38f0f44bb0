"""Pure data, without I/O: the machine, its compiled changes, values, and what an ORM and a driver implement."""
