"""All SQL for a queue. The engine knows this folder's base classes, and no database."""
