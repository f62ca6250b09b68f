"""What the service tells of itself.

metrics.py      the table of metrics
instruments.py  counters, gauges, histograms; all workers' as one answer
cells.py        the numbers of a worker, where the other workers can read them
stages.py       how long the parts of a search took
logs.py         lines for people or JSON, with the request id
tracing.py      OpenTelemetry, imported only when configured
"""
