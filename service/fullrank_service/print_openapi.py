"""Print the OpenAPI document of the default settings: python -m fullrank_service.print_openapi > docs/openapi.json."""

from __future__ import annotations

import json
import sys

from fullrank_service.app import create_app
from fullrank_service.base.settings import Settings


def main() -> None:
    """Print the document to stdout."""
    document = create_app(Settings.defaults()).openapi()
    json.dump(document, sys.stdout, indent=1, ensure_ascii=False, sort_keys=True)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
