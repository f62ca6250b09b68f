"""Documents that are written while the service runs.

    ad.py         the object `ad` of documents, checked, and as arrays
    reading.py    the body of a request → documents, or the reason why one is invalid
    log.py        all writes and deletions in one order, and the answers stored under idempotency keys;
                  sqlitelog.py in one SQLite file, postgreslog.py in PostgreSQL, for several machines
    follow.py     the log → the view that each loaded model serves, with segments merged in the background
    live.py       requests of one worker → the log, several in one commit; what routes and the registry see
    compact.py    a bundle and its live documents → a new bundle

The collection of a write is the name of a bundle: it belongs to every version of that name.
"""
