"""Tell sharded bundles, which a fleet serves, from others."""

from __future__ import annotations

from pathlib import Path

from fullrank.errors import FullrankError

# Of every sharded bundle.
_SET = "set.json"


def is_sharded(bundle: str) -> bool:
    """Return whether an address is that of a sharded bundle, or of a name with one."""
    if "://" in bundle:
        return True
    path = Path(bundle)
    return (path / _SET).is_file() or any(path.glob(f"*/{_SET}"))


def check_not_sharded(bundle: str) -> None:
    """Raise FullrankError for a sharded bundle, which workers cannot serve."""
    if is_sharded(bundle):
        raise FullrankError(
            f"{bundle}: a sharded bundle; --ray ADDRESS names the cluster whose fleet serves it"
        )
