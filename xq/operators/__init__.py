"""What operators do with a queue: find and move tasks, and look at what holds them. Workers need nothing here."""
