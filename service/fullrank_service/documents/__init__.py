"""Documents that are written while the service runs.

  log.py        all writes and deletions in one order: in SQLite, or in PostgreSQL for several machines
  follow.py     the log → the view that each loaded model serves, with segments merged in the background
  live.py       requests of one worker → the log, several in one commit; what routes and the registry see
  compact.py    a bundle and its live documents → a new bundle

The collection of a write is the name of a bundle: it belongs to every version of that name.
"""
