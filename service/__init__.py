"""Bundles in, HTTP out.

    settings.py    every setting: name, default, help
    app.py         create_app: the parts put together
    run.py         the process: environment, uvicorn; supervisor.py keeps its workers, worker.py is one
    registry.py    the models of one worker as the rest sees them
    serving.py     what a worker holds and serves, replaced by one assignment
    follower.py    the thread that follows the notes: prepares, switches, reports
    loader.py      from a version to a bundle that may serve; memory.py  whether it fits
    swap.py        the hot swap over all workers, in two phases
    state.py       the notes beside the bundles: what serves, what is proposed
    workers.py     what each worker says of itself, in a file that lives as long as it does (livefile.py)
    policy.py      what to load and what to switch to, decided without doing it
    documents/     live documents: the log, its writer, and the views that follow it
    direct.py      the way of a search: edge (middleware.py) → direct.py → routes/search.py → ranking.py → its view
    ranking.py     text → embedding → ranking → hits, on the event loop or on a bounded pool of threads
    pace.py        how long searches take: which mode answers, and where it is ranked
    cache.py       embeddings remembered in process; redis_cache.py  and behind it in Redis
    middleware.py  request id, body cap, metrics, safety headers, the last resort for errors
    access.py      who may call what: scopes of routes, callers without a key
    guard.py       what stands before a route: scope, content type, room; body.py reads JSON strictly
    protocol.py    one connection: an end to every wait, refusals without a task
    drain.py       SIGTERM: readyz first, then the door
    admission.py   slots sized by the measured time, deadlines, the rate of a client
    keys.py        the file of hashed keys, followed while it changes
    errors.py      one tree of errors, one JSON shape
    schemas.py     what is asked and what is answered
    routes/        thin: parse, call, return
    page/          the search page: three files, no build step

Importing this package imports neither numpy nor any model code, so that run.py can still set what
numpy reads from the environment.
"""
