"""Processes: run.py prepares the environment for numpy and starts them, before anything imports numpy."""
