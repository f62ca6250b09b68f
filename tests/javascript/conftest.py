"""Fixtures of the tests of clients/javascript: a service over the documents of the examples, and their pages.

`make test-javascript` builds what the pages load.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from playwright.sync_api import Browser, Page
from typer.testing import CliRunner

from fullrank.cli import build_app
from tests.api.support import served
from tests.browser.conftest import browser as browser
from tests.browser.conftest import is_defect

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "clients/javascript/element/dist/fullrank-search.js"
# Latitude and longitude of towns.
TOWNS = {
    "berlin": (52.52, 13.405),
    "potsdam": (52.39, 13.065),
    "leipzig": (51.34, 12.375),
    "hamburg": (53.551, 9.993),
    "prague": (50.088, 14.42),
    "sydney": (-33.869, 151.209),
}


class Service(NamedTuple):
    url: str
    events: Path


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for a condition. Raises AssertionError when time runs out."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


class Site(NamedTuple):
    """A web server of the repository's files, in which the address of the service replaces that of the examples.

    pages  bodies and content security policies of further pages, by path
    """

    origin: str
    pages: dict[str, tuple[str, str]]


class _Files(SimpleHTTPRequestHandler):
    pages: ClassVar[dict[str, tuple[str, str]]] = {}
    service: ClassVar[str] = ""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        file = path / "index.html" if path.is_dir() else path
        page, policy = self.pages.get(self.path, (None, ""))
        if page is None and not file.is_file():
            self.send_error(404)
            return
        body = file.read_bytes() if page is None else page.encode()
        body = body.replace(b"http://localhost:8000", self.service.encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if page else self.guess_type(file))
        if policy:
            self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A web server whose origin is not that of the service."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(ROOT))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Site(f"http://localhost:{server.server_port}", _Files.pages)
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[Service]:
    """A service with the documents of the examples; its pages may be on `site`."""
    if not BUILT.exists():
        pytest.skip("make test-javascript builds clients/javascript and runs these tests")
    folder = tmp_path_factory.mktemp("javascript")
    places = folder / "places.jsonl"
    places.write_text("".join(map(_town, TOWNS)))
    address = ["--url", "/examples/docs-site/{path}.html"]
    examples = ROOT / "examples"
    for name, source, options in (
        ("shop", examples / "shop-page/products.csv", []),
        ("docs", examples / "docs-site", address),
        ("places", places, []),
    ):
        collection = str(folder / name)
        _run("import", str(source), collection, *options)
        _run(
            "train",
            collection,
            "--out",
            str(folder / "bundles"),
            "--name",
            name,
            "--recipe",
            "bm25",
        )
    bundles = folder / "bundles"
    with served(
        bundles, FULLRANK_CORS_ORIGINS=site.origin, FULLRANK_ANONYMOUS="search,events"
    ) as url:
        _Files.service = url
        yield Service(url, bundles / ".events")


def _town(name: str) -> str:
    lat, lon = TOWNS[name]
    fields = {
        "title": f"Bakery in {name}",
        "spot": {"lat": lat, "lon": lon},
        "_geoloc": f"{lat},{lon}",
        "stars": len(name),
    }
    return json.dumps({"_id": name, **fields}) + "\n"


def _run(*arguments: str) -> None:
    done = CliRunner().invoke(build_app(), arguments)
    assert done.exit_code == 0, done.output


@pytest.fixture
def visit(browser: Browser, site: Site, service: Service) -> Iterator[Callable[[str], Page]]:
    """Open a page of the repository that searches with the service. An error in a console fails the test."""
    defects: list[str] = []
    contexts = []

    def opened(path: str, allowed: str = "no such line", **options: Any) -> Page:
        def keep(text: str) -> None:
            if allowed not in text:
                defects.append(text)

        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: keep(str(error)))
        page.on("console", lambda line: keep(line.text) if is_defect(line) else None)
        page.goto(site.origin + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert defects == []
