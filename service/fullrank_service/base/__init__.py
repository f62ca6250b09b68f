"""What every part of the service stands on: settings, errors, metrics, logs, traces, background work, SQLite."""
