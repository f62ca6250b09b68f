"""The processes: run.py sets the environment and starts them, supervisor.py keeps them running, worker.py is one.

Importing this package imports neither numpy nor any model code, so that run.py can still set what numpy reads from
the environment.
"""
