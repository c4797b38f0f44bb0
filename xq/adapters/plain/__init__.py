"""A queue without a model of the application: a store on a connection of the driver, models made of tables."""
