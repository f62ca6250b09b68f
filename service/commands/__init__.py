"""The commands of this package, registered as entry points: serve, keys, activate, rollback, compact."""
