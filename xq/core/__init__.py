"""Pure data, no input or output: the machine, what it compiles to, values, and what an ORM and a driver must offer."""
