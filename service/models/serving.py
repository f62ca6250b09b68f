"""What one worker holds and serves. A request takes ``Shelf.serving`` once and keeps it, so its answer is wholly of one
generation whatever is swapped meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from logging import getLogger
from types import MappingProxyType

from fullrank.bundle.catalog import Bundle
from service import errors
from service.edge.admission import Slot
from service.models.policy import to_drop
from service.telemetry.metrics import Metrics

ALIAS = "default"
# Where a request's Taken stands in its scope.
TAKEN = "fullrank.taken"
_log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Serving:
    """One generation, never changed after it is made: a request holds exactly one.

    models are by version, oldest load first; active and previous are versions or None.
    """

    generation: int = 0
    active: str | None = None
    previous: str | None = None
    models: Mapping[str, Bundle] = field(default_factory=lambda: MappingProxyType({}))

    def resolve(self, model: str | None) -> Bundle:
        """The bundle an alias, a version or a bundle name (its newest loaded version) means.

        None means the default. Raises ModelNotFound, or NotReady when nothing is active.
        """
        if model is None or model == ALIAS:
            if self.active is None:
                raise errors.NotReady("No model is loaded; /v1/models says why.")
            return self.models[self.active]
        if model in self.models:
            return self.models[model]
        named = [bundle for bundle in self.models.values() if bundle.name == model]
        if not named:
            raise errors.ModelNotFound(
                f"No loaded model is called {model!r}; GET /v1/models lists them."
            )
        return max(named, key=lambda bundle: (bundle.manifest.created, bundle.version))


class Taken:
    """What one request took: a Serving, its slot where it ranks, and the bundle it asked for, once that is known."""

    __slots__ = ("bundle", "serving", "slot")

    def __init__(self, serving: Serving, slot: Slot | None = None) -> None:
        self.serving = serving
        self.slot = slot
        self.bundle: Bundle | None = None

    @property
    def generation(self) -> int:
        return self.serving.generation

    @property
    def active(self) -> str | None:
        return self.serving.active

    def resolve(self, model: str | None) -> Bundle:
        """As ``Serving.resolve``; the answer will name the bundle, also when it is a problem."""
        self.bundle = self.serving.resolve(model)
        return self.bundle


class Shelf:
    """The current Serving, replaced by one thread and read by all.

    max_loaded  models kept; those that serve or served before stay beyond it
    besides     versions that are to stay with them
    failures    why a version was refused, and under ALIAS why what is noted does not serve
    release     called with a bundle that was let go, or was prepared and is not to serve after all
    """

    def __init__(
        self,
        metrics: Metrics,
        max_loaded: int = 8,
        release: Callable[[Bundle], None] | None = None,
    ) -> None:
        self.serving = Serving()
        self.failures: dict[str, str] = {}
        self._metrics = metrics
        self.max_loaded = max_loaded
        self.besides: tuple[str, ...] = ()
        self._release = release

    def hold(self, bundle: Bundle) -> None:
        """Add a model beside what serves."""
        self.failures.pop(bundle.version, None)
        if self.serving.models.get(bundle.version) is not bundle:
            self._publish(replace(self.serving, models=self._with(bundle)))
            _log.info("loaded %s", bundle.version)

    def switch(self, bundle: Bundle, generation: int, previous: str | None) -> None:
        """Let a model serve as the default."""
        self.failures.pop(bundle.version, None)
        self.failures.pop(ALIAS, None)
        self._publish(Serving(generation, bundle.version, previous, self._with(bundle)))
        self._metrics.generation.set(generation)
        self._metrics.documents.set(len(bundle.documents))
        self._metrics.bundle_bytes.set(bundle.manifest.total_bytes)
        _log.info("generation %d serves %s", generation, bundle.version)

    def _with(self, bundle: Bundle) -> Mapping[str, Bundle]:
        return {**self.serving.models, bundle.version: bundle}

    def _publish(self, serving: Serving) -> None:
        models = dict(serving.models)
        newest = next(reversed(models), None)
        keep = {serving.active, serving.previous, newest, *self.besides}
        dropped = [models.pop(version) for version in to_drop(list(models), keep, self.max_loaded)]
        dropped += [
            old
            for version, old in self.serving.models.items()
            if version in models and models[version] is not old
        ]
        # The switch: requests that took the old reference finish on it.
        self.serving = replace(serving, models=MappingProxyType(models))
        self._metrics.models_loaded.set(len(models))
        self.release(dropped)

    def release(self, bundles: Iterable[Bundle]) -> None:
        """Bundles that are needed no more, unless the shelf holds them."""
        for bundle in bundles:
            if self._release is not None and self.serving.models.get(bundle.version) is not bundle:
                self._release(bundle)
