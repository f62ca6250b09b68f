"""Bundles in, HTTP out.

    app.py        create_app: a list of capabilities, each with its routes, work and storage
    backend.py    what an app answers from: bundles of this machine, or a fleet
    models/       which bundle serves, and the hot swap over all workers
    search/       from a text to ranked documents: modes, threads, caches, experiments, cursors
    documents/    live documents: the log, its writer, and the views that follow it
    rules/        pinned, hidden and synonymous, by query
    events/       what people do with answers, into the log
    completion/   completions, documents clicked together, click probabilities
    experiments/  the votes on two versions, and the loop that acts on them
    ads/          ads in placements of pages
    http/         what all routes share: entry, keys, admission, errors, strict JSON, OpenAPI
    base/         settings, errors, metrics, logs, traces, background work, SQLite
    process/      environment, uvicorn, the supervisor and its workers
    page/         the search page: no framework, no build step
    commands/     `fullrank serve` and others

Importing this package imports neither numpy nor model code, because process/run.py sets environment variables that
numpy reads at import.
"""
