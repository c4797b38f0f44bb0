"""All SQL of a queue. The engine knows the base classes of this folder, and no database."""
