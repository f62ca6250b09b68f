"""Clients generated from the OpenAPI document, each used once against the real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.support import at, make_bundle, served

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "openapi.json"
# The documented option for bodies of a media type that the generator does not know: NDJSON is sent as bytes.
PYTHON_SETTINGS = """
content_type_overrides: {application/x-ndjson: application/octet-stream}
post_hooks: []
"""
PYTHON_PROGRAM = """
import io, json, sys
from fullrank_client import Client
from fullrank_client.api.documents import delete_document, get_document, put_document, write_documents
from fullrank_client.api.models import list_models
from fullrank_client.api.search import match, search, search_batch, similar_documents
from fullrank_client.models import (
    BatchRequest, MatchReply, MatchRequest, Page, Placement, ProblemDocument, PutDocumentBody,
    SearchReply, SearchRequest,
)
from fullrank_client.types import File

client = Client(sys.argv[1])
body = PutDocumentBody(title="rsync", text="Copy files to another host")
body["year"] = 1996
written = put_document.sync("rsync", client=client, body=body)
lines = b'{"_id": "tar", "text": "Archive files", "tags": ["a", {"b": null}]}\\n{"_id": 1}\\n'
verdicts = write_documents.sync_detailed(client=client, body=File(io.BytesIO(lines)))
assert [json.loads(line)["status"] for line in verdicts.content.splitlines()] == [200, 422]
request = SearchRequest(query="copy files", min_seq=written.seq)
found = search.sync(client=client, body=request)
assert isinstance(found, SearchReply), found
assert "rsync" in [hit.id for hit in found.hits]
assert get_document.sync("rsync", client=client).fields["year"] == 1996
assert search_batch.sync(client=client, body=BatchRequest(searches=[request])).answers[0].hits
assert similar_documents.sync("rsync", client=client, limit=2).hits
placed = match.sync(client=client, body=MatchRequest(page=Page(text="copy"), placements=[Placement(id="a")]))
assert isinstance(placed, MatchReply), placed
assert delete_document.sync("rsync", client=client).seq > written.seq
problem = search.sync(client=client, body=SearchRequest(query="x", model="unknown"))
assert isinstance(problem, ProblemDocument) and problem.status == 404
assert list_models.sync(client=client).generation == 1
"""
NPM_PACKAGES = ("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "typescript@5.9.3")
TYPESCRIPT_PROGRAM = """
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[]; exit(code: number): void };
const client = createClient<paths>({ baseUrl: process.argv[2] });
function checked<T>(value: T | undefined, error: unknown): T {
  if (value === undefined) throw new Error(JSON.stringify(error));
  return value;
}
const put = await client.PUT("/v1/documents/{id}", {
  params: { path: { id: "rsync" } },
  body: { title: "rsync", text: "Copy files to another host", year: 1996 },
});
const seq: number = checked(put.data, put.error).seq;
const bulk = await client.POST("/v1/documents:bulk", {
  body: '{"_id": "tar", "text": "Archive files"}\\n',
  bodySerializer: (lines) => lines,
  headers: { "Content-Type": "application/x-ndjson" },
  parseAs: "text",
});
checked(bulk.data, bulk.error);
const search = await client.POST("/v1/search", { body: { query: "copy files", min_seq: seq } });
const ids: string[] = checked(search.data, search.error).hits.map((hit) => hit.id);
const similar = await client.GET("/v1/documents/{id}/similar", {
  params: { path: { id: "rsync" }, query: { limit: 2 } },
});
checked(similar.data, similar.error);
const unknown = await client.POST("/v1/search", { body: { query: "x", model: "unknown" } });
if (unknown.error?.status !== 404 || !ids.includes("rsync")) throw new Error(ids.join());
"""
COMPILER_SETTINGS = {
    "compilerOptions": {
        "strict": True,
        "target": "es2022",
        "module": "nodenext",
        "moduleResolution": "nodenext",
        "lib": ["es2022", "dom", "dom.iterable"],
    },
    "files": ["program.ts"],
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("bundles")
    make_bundle(root, "learned", n_dense=4, created=at(2))
    with served(root) as address:
        yield address


def run(*command: str | Path, folder: Path) -> None:
    """Run a program. Its output is in the error if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_generated_python_client_covers_every_operation(url: str, tmp_path: Path) -> None:
    pytest.importorskip("openapi_python_client")
    (tmp_path / "settings.yaml").write_text(PYTHON_SETTINGS)
    code = "from openapi_python_client.cli import app; app()"
    options = ["--path", str(DOCUMENT), "--meta", "none", "--config", "settings.yaml"]
    options += ["--output-path", str(tmp_path / "fullrank_client"), "--fail-on-warning"]
    run(sys.executable, "-c", code, "generate", *options, folder=tmp_path)
    generated = {path.stem for path in (tmp_path / "fullrank_client" / "api").glob("*/[a-z]*.py")}
    paths = json.loads(DOCUMENT.read_text())["paths"]
    assert generated == {
        operation["operationId"] for methods in paths.values() for operation in methods.values()
    }
    (tmp_path / "program.py").write_text(PYTHON_PROGRAM)
    run(sys.executable, "program.py", url, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_generated_typescript_client_compiles_and_works(url: str, tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm and node are not installed (apt-get install npm)")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    install = [npm, "install", "--no-audit", "--no-fund", "--prefer-offline", *NPM_PACKAGES]
    installed = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    if installed.returncode:
        pytest.skip(f"npm cannot install the generator: {installed.stderr[-300:]}")
    binaries = tmp_path / "node_modules" / ".bin"
    options = ["--default-non-nullable=false", "--output", "schema.ts"]
    run(binaries / "openapi-typescript", DOCUMENT, *options, folder=tmp_path)
    (tmp_path / "program.ts").write_text(TYPESCRIPT_PROGRAM)
    (tmp_path / "tsconfig.json").write_text(json.dumps(COMPILER_SETTINGS))
    run(binaries / "tsc", "--project", ".", folder=tmp_path)
    run(node, "program.js", url, folder=tmp_path)
