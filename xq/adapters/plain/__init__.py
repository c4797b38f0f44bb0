"""A queue without an application's model: a store on a driver's connection, and models made from tables."""
