"""Fixtures of the tests of a fleet's answers."""

from tests.databases import new_database as new_database
from tests.databases import postgres_server as postgres_server
