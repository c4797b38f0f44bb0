"""What connects xq to the world: databases, ORMs."""
