"""How features, dialects and a model become a queue: here only."""
