"""Bundles in, HTTP out.

  app.py        create_app: a list of capabilities, each with its routes, work and storage
  backend.py    what an app answers from: bundles of this machine, or a fleet
  http/         what all routes share: entry, keys, admission, errors, strict JSON, OpenAPI
  base/         settings, errors, metrics, logs, traces, background work, SQLite
  process/      environment, uvicorn, the supervisor and its workers

Importing this package imports neither numpy nor model code, because process/run.py sets environment variables that
numpy reads at import.
"""
