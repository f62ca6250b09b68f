"""The models that one worker has loaded, and which of them serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from logging import getLogger
from types import MappingProxyType

from fullrank.bundle import Bundle
from fullrank_service.base.experiment import Experiment
from fullrank_service.base.metrics import Metrics
from fullrank_service.http.serving import ALIAS, Serving
from fullrank_service.models.policy import to_drop

_log = getLogger(__name__)


class LoadedModels:
    """The current Serving, replaced by one thread and read by all.

    max_loaded  models kept loaded; the active and the previous one stay even beyond it
    pinned      further versions that stay loaded
    failures    why a version was refused, and under ALIAS why the activated version does not serve
    release     called with a bundle that was dropped, or was prepared and will not serve
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
        self.pinned: tuple[str, ...] = ()
        self._release = release

    def add(self, bundle: Bundle) -> None:
        """Add a model; the active one stays active."""
        self.failures.pop(bundle.version, None)
        if self.serving.models.get(bundle.version) is not bundle:
            self._publish(replace(self.serving, models=self._with(bundle)))
            _log.info("loaded %s", bundle.version)

    def switch(
        self,
        bundle: Bundle,
        generation: int,
        previous: str | None,
        experiment: Experiment | None = None,
    ) -> None:
        """Make a model the default; the candidate of an experiment must be loaded."""
        self.failures.pop(bundle.version, None)
        self.failures.pop(ALIAS, None)
        models = self._with(bundle)
        self._publish(Serving(generation, bundle.version, previous, models, experiment))
        self._metrics.generation.set(generation)
        self._metrics.documents.set(bundle.n_documents)
        self._metrics.bundle_bytes.set(bundle.manifest.total_bytes)
        _log.info("generation %d serves %s", generation, bundle.version)

    def _with(self, bundle: Bundle) -> Mapping[str, Bundle]:
        return {**self.serving.models, bundle.version: bundle}

    def _publish(self, serving: Serving) -> None:
        models = dict(serving.models)
        newest = next(reversed(models), None)
        experiment = serving.experiment
        tried = None if experiment is None else experiment.candidate
        keep = {serving.active, serving.previous, tried, newest, *self.pinned}
        dropped = [models.pop(version) for version in to_drop(list(models), keep, self.max_loaded)]
        dropped += [
            old
            for version, old in self.serving.models.items()
            if version in models and models[version] is not old
        ]
        # The switch. Requests that have read the old reference finish with it.
        self.serving = replace(serving, models=MappingProxyType(models))
        self._metrics.models_loaded.set(len(models))
        self.release(dropped)

    def release(self, bundles: Iterable[Bundle]) -> None:
        """Release bundles that are no longer needed, except those that are loaded."""
        for bundle in bundles:
            if self._release is not None and self.serving.models.get(bundle.version) is not bundle:
                self._release(bundle)
