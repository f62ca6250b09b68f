"""Search: routes, the request and its answer (request.py), engines and caches."""
