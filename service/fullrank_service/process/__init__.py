"""Processes: run.py prepares the environment and starts them, supervisor.py keeps them running, worker.py is one.

The supervisor imports the code once, then forks the workers, so they share its memory.

Importing this package imports neither numpy nor model code, because run.py sets environment variables that numpy reads
at import.
"""
