"""Documents that are written while the service runs.

    reading.py      the body of a request → documents, or the reason why one is invalid
    submission.py   the types of a request to the log and of its result
    log.py          all writes and deletions in one order; sqlitelog.py in one SQLite file,
                    postgreslog.py in PostgreSQL, for several machines
    logplace.py     opens the log, refuses one that was replaced; logerrors.py says why one cannot be used
    idempotency.py  answers stored under the keys of requests
    history.py      operations that newer ones have replaced
    past.py         views as of earlier operations, for cursors
    writer.py       requests of one worker → the log, several in one commit
    follow.py       the log → the view that each loaded model serves
    merging.py      segments of the views → fewer segments, in the background
    live.py         writer and follower together, for routes and the registry
    compact.py      a bundle and its live documents → a new bundle

The collection of a write is the name of a bundle: it belongs to every version of that name.
"""
