"""Search: routes, the request and its answer (request.py, answers.py), engines and caches."""
