"""Processes: run.py prepares the environment and starts them, supervisor.py keeps them running, worker.py is one.

Importing this package imports neither numpy nor model code, because run.py sets environment variables that numpy reads
at import.
"""
