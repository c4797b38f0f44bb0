"""Sessions, the owners of taken tasks, and the liveness locks that show that their processes live."""
