"""Bundles in, HTTP out.

    app.py        create_app: puts the parts together
    settings.py   every setting: name, default, description
    repeating.py  work beside requests: repeated steps, and several requests in one sync of the disk
    errors.py     one tree of errors, one JSON shape
    http/         from a connection to a route and back: routes, schemas, limits
    auth/         API keys and their scopes
    admission/    the bounded queue of rankings, and rates of clients
    search/       from a text to ranked documents: modes, threads, caches
    models/       which bundle serves, and the hot swap over all workers
    documents/    live documents: the log, its writer, and the views that follow it
    rules/        pinned, hidden and synonymous, by query
    events/       what people do with answers, into the log
    usage/        completions, and documents clicked together
    experiments/  two versions, or rarely shown documents, on people
    ads/          ads in placements of pages
    telemetry/    metrics, log lines, traces
    process/      environment, uvicorn, the supervisor and its workers
    page/         the search page: no framework, no build step
    commands/     `fullrank serve` and others

Importing this package imports neither numpy nor model code, because process/run.py sets environment variables that
numpy reads at import.
"""
