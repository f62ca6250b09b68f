"""The metrics, log lines and traces of the service.

metrics.py      the table of metrics
sharing.py      how several worker processes report as one service
logs.py         log lines for people or as JSON, with the request id
tracing.py      a stopwatch for the parts of a search; OpenTelemetry, imported only when configured
"""
