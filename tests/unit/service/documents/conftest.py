"""Fixtures of the tests of the log."""

from tests.databases import new_database as new_database
from tests.databases import postgres_server as postgres_server
