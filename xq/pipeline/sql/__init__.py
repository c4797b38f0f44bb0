"""The SQL that pipelines alone run: extracts, and the tables beside a queue that other processes write."""
