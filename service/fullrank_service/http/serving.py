"""Which model generation answers a request.

A request reads what serves once and keeps it, so its answer comes from one generation even if a swap happens meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from fullrank.bundle import Bundle
from fullrank_service.base import errors
from fullrank_service.base.experiment import Experiment
from fullrank_service.http.admission import Slot

ALIAS = "default"
# The key of a request's RequestModel in its ASGI scope.
REQUEST_MODEL = "fullrank.request_model"
Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Serving:
    """One generation; immutable.

    active, previous  versions, or None
    models            by version, oldest load first
    experiment        against the active version; its candidate is loaded
    """

    generation: int = 0
    active: str | None = None
    previous: str | None = None
    models: Mapping[str, Bundle] = field(default_factory=lambda: MappingProxyType({}))
    experiment: Experiment | None = None

    def resolve(self, model: str | None) -> Bundle:
        """Return the bundle that a request names.

        Args:
            model: "default", a version, or a bundle name (its newest loaded version); None: the default.

        Raises:
            ModelNotFound: no loaded model has this name.
            NotReady: the request names no model and no model is active.
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


class RequestModel:
    """The generation that answers one request, its headers, its slot if it ranks, its bundle once resolved."""

    __slots__ = ("bundle", "headers", "serving", "slot")

    def __init__(
        self, serving: Serving, slot: Slot | None = None, headers: Sequence[Header] = ()
    ) -> None:
        self.serving = serving
        self.slot = slot
        self.headers = headers
        self.bundle: Bundle | None = None

    @property
    def generation(self) -> int:
        return self.serving.generation

    @property
    def active(self) -> str | None:
        return self.serving.active

    def resolve(self, model: str | None) -> Bundle:
        """Resolve as ``Serving.resolve``, and note the bundle: every answer names it, problem documents too."""
        self.bundle = self.serving.resolve(model)
        return self.bundle
