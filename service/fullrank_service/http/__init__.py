"""HTTP: routes, schemas, guards, middleware, strict JSON."""
