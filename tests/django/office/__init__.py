"""An app whose queues are worked on, and looked at, by commands. Only their tests install it."""
