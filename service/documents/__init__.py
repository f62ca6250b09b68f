"""Documents that are written while the service runs.

    reading.py      the body of a request → documents, each checked, or why not
    log.py          what was written and deleted, in one order, in one SQLite file
    idempotency.py  answers kept by the key that a client gave its request
    writer.py       requests of one worker → the log, those that wait in one commit
    follow.py       the log → the view that each loaded model serves
    live.py         both ends together, as routes and the registry use them
    compact.py      a model's documents and the log's, written as one new bundle

A bundle's name is its collection: what is written belongs to every version of that name.
"""
