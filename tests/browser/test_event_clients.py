"""Unmodified ubi.js and search-insights.js in Chromium, on a page of another origin: every event arrives.

npm fetches search-insights and axios, by version and checksum, into pytest's cache. npm does not have ubi.js:
FULLRANK_UBI_JS names a copy of ubi-javascript-collector/ubi.js of github.com/opensearch-project/user-behavior-insights.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from fullrank.events.log import EventLog
from fullrank_service.http.keys import create_key
from tests.api.support import at, make_bundle, served

pytestmark = pytest.mark.browser

# name → version, SHA-256 of the archive, script within
PACKAGES = {
    "search-insights": (
        "2.17.3",
        "81043b72832d90dd31e286c81bb6eb9f1a5f988d54db18c77847e554609f9235",
        "dist/search-insights-browser.mjs",
    ),
    "axios": (
        "1.7.9",
        "634e3ed585d7c8857f00cb7556f79422614e8defd008f8bb34b6018c1faefa0f",
        "dist/esm/axios.min.js",
    ),
}


def package(name: str, folder: Path) -> str:
    """Return the script of a package; skip the test if npm cannot fetch it."""
    version, checksum, file = PACKAGES[name]
    archive = folder / f"{name}-{version}.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not on PATH (Debian: apt-get install npm)")
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "pack", f"{name}@{version}"], cwd=folder, capture_output=True, timeout=120
        )
        if done.returncode:
            pytest.skip(f"npm cannot fetch {name} {version}")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == checksum
    with tarfile.open(archive) as files:
        found = files.extractfile(f"package/{file}")
        assert found is not None
        return found.read().decode()


@pytest.fixture(scope="module")
def packages(pytestconfig: pytest.Config) -> Path:
    cache = pytestconfig.cache
    assert cache is not None
    return cache.mkdir("npm")


@pytest.fixture(scope="module")
def service(
    shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path, str]]:
    """The address of a service that admits pages of the shop, its log, and a key for events."""
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "bm25", created=at(1))
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    _, token = create_key(keys, ["events"], "page")
    with served(
        root, FULLRANK_CORS_ORIGINS=shop.origin, FULLRANK_KEYS=str(keys), FULLRANK_ANONYMOUS="none"
    ) as url:
        yield url, root / ".events", token


class Shop:
    """A web server of another origin than the service; `files` has content and type by path."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, str]] = {}
        files = self.files

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content, kind = files.get(self.path, ("", "text/plain"))
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(content.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def show(self, browser: Browser, script: str, modules: dict[str, str]) -> Page:
        """Open a page with a script, which may import the given modules; wait for its end."""
        names = {name: f"/{number}.js" for number, name in enumerate(modules)}
        for name, path in names.items():
            self.files[path] = modules[name], "text/javascript"
        self.files["/"] = (
            f'<script type="importmap">{json.dumps({"imports": names})}</script>'
            f'<script type="module">{script}; window.isReady = true</script>',
            "text/html",
        )
        page = browser.new_page()
        page.goto(self.origin)
        page.wait_for_function("window.isReady")
        return page

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    found = Shop()
    yield found
    found.close()


def arrived(folder: Path, application: str, count: int) -> list[tuple[str, str | None]]:
    """Wait for events of an application; return action and object of each."""
    end = time.monotonic() + 20
    while True:
        events = [e for e in EventLog(folder).events() if e.texts.get("application") == application]
        if len(events) >= count or time.monotonic() > end:
            return [(event.action, event.object_id) for event in events]
        time.sleep(0.05)


@pytest.mark.parametrize("transport", ["beacon", "request"])
def test_search_insights(
    browser: Browser, shop: Shop, service: tuple[str, Path, str], packages: Path, transport: str
) -> None:
    url, folder, token = service
    script = f"""
        {"navigator.sendBeacon = undefined;" if transport == "request" else ""}
        const {{ default: aa }} = await import("search-insights");
        aa("init", {{ appId: "-", apiKey: "{token}", host: "{url}/v1/insights", userToken: "anna" }});
        const of = (number) => ({{ index: "{transport}", eventName: "x", objectIDs: [`d${{number}}`] }});
        for (let i = 0; i < 50; i++)
            aa("clickedObjectIDsAfterSearch", {{ ...of(i), queryID: "q", positions: [i + 1] }});
        aa("viewedObjectIDs", of(50));
        aa("purchasedObjectIDs", of(51));
    """
    page = shop.show(browser, script, {"search-insights": package("search-insights", packages)})
    found = arrived(folder, transport, 52)
    page.close()
    expected = [("click", f"d{number}") for number in range(50)]
    expected += [("impression", "d50"), ("purchase", "d51")]
    assert sorted(found) == sorted((action, str(id)) for action, id in expected)


def test_ubi(browser: Browser, shop: Shop, service: tuple[str, Path, str], packages: Path) -> None:
    path = os.environ.get("FULLRANK_UBI_JS")
    if path is None:
        pytest.skip("set FULLRANK_UBI_JS to a copy of ubi.js, which npm does not have")
    url, folder, token = service
    script = f"""
        const {{ UbiClient, UbiEvent, UbiEventAttributes, ...more }} = await import("ubi");
        const client = new UbiClient("{url}/v1/ubi");
        client.rest_config.headers.Authorization = "Bearer {token}";
        const Query = more.UbiQueryRequest ?? more.UbiQuery; // the name differs between versions
        const query = new Query("ubi", "anna", "q", "copy", "id");
        const sent = [client.trackQuery(query)];
        for (let i = 0; i < 50; i++) {{
            const object = new UbiEventAttributes("id", `d${{i}}`, "a document", {{ price: i }}, {{ ordinal: i }});
            sent.push(client.trackEvent(new UbiEvent("ubi", "click", "anna", "s", "q", object)));
        }}
        window.kept = (await Promise.all(sent)).map((reply) => reply.kept);
    """
    modules = {"ubi": Path(path).read_text("utf-8"), "axios": package("axios", packages)}
    page = shop.show(browser, script, modules)
    page.wait_for_function("window.kept")
    assert page.evaluate("window.kept") == [1] * 51
    expected = [("click", f"d{number}") for number in range(50)]
    assert sorted(arrived(folder, "ubi", 50)) == sorted(expected)
    end = time.monotonic() + 10
    while not any(served.kind == "reported" for served in EventLog(folder).lists()):
        assert time.monotonic() < end
