"""The errors that Fullrank raises, as a tree.

    FullrankError
    ├── CollectionError      a corpus, queries or qrels file cannot be read
    ├── RecipeError          a recipe or an override is invalid
    ├── TrainingError        training cannot start, continue or resume
    ├── ArgumentError        an argument of the Python API is wrong; it is a ValueError, too
    ├── DocumentRefused      a model cannot accept a live document
    ├── QueryError           a query cannot be answered
    ├── FieldError           a part of a request or a document is malformed, with its path
    │   └── FilterError      a filter or a facet does not fit the stored fields; it is a QueryError, too
    ├── ExportError          a bundle cannot be exported to an engine, or the engine refuses
    └── BundleError          a bundle is missing a file, damaged or of another format
        └── BundleNotFound   no bundle of that name or version

The command line prints the message as one line, and its notes below; the service turns it into a problem document.
"""

import reprlib
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INTERRUPTED = 130
"""The exit code of an interrupted command: 128 + SIGINT."""


class FullrankError(Exception):
    """Base of all errors that carry a message meant for the user."""

    exit_code = 1
    """Of a command that ends with the error."""


class CollectionError(FullrankError):
    """A collection cannot be read; the message names file, line and field."""


class RecipeError(FullrankError):
    """A recipe or an override names an unknown setting or an impossible value."""


class TrainingError(FullrankError):
    """Training cannot start, continue or resume."""


class ArgumentError(FullrankError, ValueError):
    """An argument of the Python API is wrong; the message names it."""


def require(is_valid: bool, name: str, value: object, expected: str) -> None:
    """Raise ArgumentError unless an argument is valid: "limit: 0 is not a number from 1 on"."""
    if not is_valid:
        raise ArgumentError(f"{name}: {reprlib.repr(value)} is not {expected}")


class DocumentRefused(FullrankError):
    """A model cannot accept a live document; the message names the field and the reason."""


class QueryError(FullrankError):
    """A query cannot be answered; the message names the reason."""


class FieldError(FullrankError):
    """A part of a request or a document is malformed.

    Attributes:
        path: Position of the part: "filter.or.1.year.gte", "ad.adomain".
        reason: What is wrong there.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class FilterError(FieldError, QueryError):
    """A filter or a facet is malformed or does not fit the stored fields."""


class ExportError(FullrankError):
    """A bundle cannot be exported to an engine, or the engine refuses; the message names which and why."""


class BundleError(FullrankError):
    """A bundle is incomplete, damaged or of another format; the message names file and reason."""


class BundleNotFound(BundleError):
    """No bundle of that name or version exists under the folder."""


def require_new(folder: Path) -> None:
    """Raise FullrankError if a folder to write exists."""
    if folder.exists():
        raise FullrankError(f"{folder}: exists already; choose another folder or delete it")


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn the import error of a missing optional dependency into one line that names the package to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "fullrank":
            raise  # Not an extra: this installation is broken.
        raise lacks(error, extra) from error


def lacks(error: ImportError, extra: str) -> FullrankError:
    """Return the error that names the extra to install."""
    return FullrankError(f"needs {error.name}; install it with: pip install 'fullrank[{extra}]'")


def describe_exit(code: int) -> str:
    """Say how a process ended, given subprocess's return code: "exited with code 1", "was killed by SIGKILL"."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
