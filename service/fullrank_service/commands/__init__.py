"""The commands of this package, registered as entry points: serve, keys, documents, activate, rollback, compact."""
