"""Every error that Fullrank raises on purpose.

    FullrankError
    ├── CollectionError      a corpus, queries or qrels file is not what it should be
    ├── RecipeError          a recipe or an override is not understood
    ├── TrainingError        training cannot start, go on or be resumed
    ├── DocumentRefused      a live document cannot be taken by a model
    ├── QueryError           a query cannot be answered as asked
    │   └── FilterError      a filter or a facet asks for what there is not
    └── BundleError          a bundle is missing a file, damaged or of another format
        └── BundleNotFound   no bundle of that name or version

The command line prints the message as one line; the service turns it into a problem document.
"""


class FullrankError(Exception):
    """Base of all errors that carry a message meant for the user."""


class CollectionError(FullrankError):
    """A collection cannot be read; the message names file, line and field."""


class RecipeError(FullrankError):
    """A recipe or an override names an unknown setting or an impossible value."""


class TrainingError(FullrankError):
    """Training cannot start, continue or resume."""


class DocumentRefused(FullrankError):
    """A live document cannot be taken; the message says which, by what and why."""


class QueryError(FullrankError):
    """A query cannot be answered as asked."""


class FilterError(QueryError):
    """A filter or a facet is malformed or does not fit the stored fields.

    path     where in the request, "filter.or.1.year.gte"
    reason   what is wrong there
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class BundleError(FullrankError):
    """A bundle is incomplete, damaged or of another format; the message names file and reason."""


class BundleNotFound(BundleError):
    """No bundle of that name or version exists under the folder."""
