"""Routers fill pages of ads from a ranking that a second stage has reordered as the unsharded service does.

Tests of ``test_equal_ads`` run here over a bundle with a second stage.
"""

from __future__ import annotations

import pytest

from tests.unit.fleet.serving import ads
from tests.unit.fleet.serving.reordering import stage_of_documents
from tests.unit.fleet.serving.routing import Whole
from tests.unit.fleet.serving.test_equal_ads import anyio_backend as anyio_backend
from tests.unit.fleet.serving.test_equal_ads import clients as clients
from tests.unit.fleet.serving.test_equal_ads import quick_calibrations as quick_calibrations
from tests.unit.fleet.serving.test_equal_ads import sets as sets
from tests.unit.fleet.serving.test_equal_ads import settings as settings
from tests.unit.fleet.serving.test_equal_ads import shards as shards
from tests.unit.fleet.serving.test_equal_ads import signer as signer
from tests.unit.fleet.serving.test_equal_ads import test_pages_are_equal as test_pages
from tests.unit.fleet.serving.test_equal_ads import test_pages_by_value_are_equal as test_by_value

pytestmark = pytest.mark.anyio
__all__ = ["test_by_value", "test_pages"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    root = tmp_path_factory.mktemp("whole")
    ads.taxonomy(root)
    return Whole(root, 300, further=ads.ads_of_the_corpus, make_stage=stage_of_documents)
