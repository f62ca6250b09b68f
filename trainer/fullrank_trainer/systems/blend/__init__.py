"""A blend: a sum of recipes whose weights are chosen on clicked and on never clicked documents."""
