"""Fixtures that every test folder shares."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings
from pytest_timeout import Settings

from tests.random_cases import FEW, MANY, THOROUGH, UNTIMED

REPOSITORY = Path(__file__).resolve().parent.parent


# What a shell runs in the background ignores Ctrl-C, and nohup makes programs ignore a closed terminal. The processes
# that the tests start would inherit that and wait for a signal that never arrives.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# Each pytest worker has as many threads as there are cores. A thread of OpenMP waits for its next part in a loop, which
# takes the core from the threads that it waits for. The variable counts when OpenMP is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


# No test has a time limit for a case: other load would decide whether it passes.
settings.register_profile(UNTIMED, deadline=None, max_examples=FEW)
settings.register_profile(THOROUGH, deadline=None, max_examples=MANY)
settings.load_profile(UNTIMED)

_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 4 << 30  # far more than all tests leave behind

# A kernel compiles at its first import and is kept on disk. Two workers with the same order of imports would each
# compile all of them, so each begins with one half and loads most of the other.
_FIRST_KERNELS = {"gw0": ("encode", "tokens"), "gw1": ("fast", "scoring")}


def pytest_configure() -> None:
    """Keep the files of tests in memory if there is room, and share the compiling of kernels.

    A bundle syncs every file that it has, and a disk takes ten times as long for that as everything else.
    PYTEST_DEBUG_TEMPROOT chooses another place.
    """
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    for name in _FIRST_KERNELS.get(os.environ.get("PYTEST_XDIST_WORKER", ""), ()):
        import_module(f"fullrank.kernels.{name}")


# Collection makes millions of objects that live until the end. Neither that nor any later test has to search them for
# garbage.
gc.disable()


def pytest_collection_finish() -> None:
    """Leave what exists now out of the later searches for garbage."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    """Put the environment back after each test; commands that serve set variables for their workers."""
    kept = dict(os.environ)
    yield
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    os.environ.update(kept)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def shared_data() -> Path:
    return Path(os.environ.get("FULLRANK_DATA") or REPOSITORY.parent / "shared" / "data")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The shared collections; a test that asks for them is marked `data`."""
    return shared_data()


_SLOW_S = 7200.0
_TEARDOWN_S = 120.0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Bound the teardown on its own: pytest-timeout stops its clock where a test fails."""
    item.ihook.pytest_timeout_set_timer(
        item=item, settings=Settings(_TEARDOWN_S, "signal", False, False)
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests their time, and skip, by name, what reads the shared collections where they are absent."""
    for item in items:
        if "slow" in item.keywords and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_SLOW_S))
    folder = shared_data()
    if folder.is_dir():
        return
    skip = pytest.mark.skip(
        reason=f"the shared collections are not at {folder} (set FULLRANK_DATA)"
    )
    for item in items:
        if "data" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Train on one thread, so that the bits do not depend on the cores."""
    # Collection imports this file for every test, and most of them need no numba.
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


@pytest.fixture(scope="module")
def few_made_up_words() -> Iterator[None]:
    """Calibrate floors by fewer made-up words than the product draws, in files whose assertions are not about floors.

    Each of the thousands of words is encoded alone, which takes longer than the training of a tiny model. The thorough
    profile of `make test-slow` keeps their number.
    """
    with pytest.MonkeyPatch.context() as patch:
        if settings.get_current_profile_name() != THOROUGH:
            patch.setattr("fullrank_trainer.evaluation.floor._FAMILIAR_WORDS", 30)
            patch.setattr("fullrank_trainer.evaluation.floor._MADE_UP", 15)
        yield
