"""Imports LightGBM. Modules that need it start with ``pytest.importorskip("tests.openmp", exc_type=ImportError)``."""

from __future__ import annotations

try:
    import lightgbm  # noqa: F401
except OSError as error:  # the wheel takes OpenMP from the system, and slim systems have none
    raise ImportError(f"{error} (Debian: apt-get install libgomp1)") from error
