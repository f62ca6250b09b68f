"""Bundles in, HTTP out.

    settings.py   every setting: name, default, help
    app.py        create_app: the parts put together
    direct.py     the way of a search: edge/middleware.py → direct.py → routes/search.py → ranking.py → its view
    ranking.py    text → embedding → ranking → hits, on the event loop or on a bounded pool of threads
    pace.py       how long searches take: which mode answers, and where it is ranked
    errors.py     one tree of errors, one JSON shape
    schemas.py    what is asked and what is answered
    routes/       thin: parse, call, return
    edge/         between a connection and a route: keys, scopes, caps, deadlines, slow clients
    models/       which bundle serves, and the hot swap over all workers
    documents/    live documents: the log, its writer, and the views that follow it
    caching/      embeddings remembered in process and in Redis
    telemetry/    metrics, logs, traces
    process/      the processes: environment, uvicorn, the supervisor and its workers
    page/         the search page: three files, no build step

Importing this package imports neither numpy nor any model code, so that process/run.py can still set what
numpy reads from the environment.
"""
