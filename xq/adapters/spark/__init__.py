"""Queues and their history in Spark. It imports nothing: the command line loads `commands` where PySpark may lack."""
