"""``fullrank bundles activate``, ``rollback``, ``compact`` and ``prune``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fullrank.cli.arguments import BundlesFolder, Json
from fullrank.cli.commands import FLEET, load
from fullrank.cli.output import print_json
from fullrank.errors import BundleNotFound, FullrankError, needs
from fullrank.progress import Reporter
from fullrank_service.commands.documents import DocumentsOption

# Tell sharded bundles, which a fleet serves, from others.


# Of every sharded bundle.
_SET = "set.json"


def is_sharded(bundle: str) -> bool:
    """Return whether an address is that of a sharded bundle, or of a name with one."""
    if "://" in bundle:
        return True
    path = Path(bundle)
    return (path / _SET).is_file() or any(path.glob(f"*/{_SET}"))


def check_not_sharded(bundle: str) -> None:
    """Raise FullrankError for a sharded bundle, which workers cannot serve."""
    if is_sharded(bundle):
        raise FullrankError(
            f"{bundle}: a sharded bundle; --ray ADDRESS names the cluster whose fleet serves it"
        )


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", help="Longest wait until every worker is prepared.", min=0.1
    ),
]

InCollection = Annotated[
    bool,
    typer.Option("--collection", help="Change only what /v1/collections/{name}/… serves."),
]
OfCollection = Annotated[
    str | None,
    typer.Option(
        "--collection",
        metavar="NAME",
        help="The collection; default: the one that /v1/search searches.",
    ),
]

RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Serve a sharded bundle from the fleet of this Ray cluster: auto, or HOST:PORT.",
    ),
]


def activate(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE", help="A version's folder, or BUNDLES/NAME for its newest version."
        ),
    ],
    collection: InCollection = False,
    timeout: Timeout = 120,
    ray: RayOption = None,
    json: Json = False,
) -> None:
    """Serve a bundle in all workers, those that run and those that start later.

    If no worker runs, the bundle is verified and recorded as the active one.
    """
    if ray is not None:
        _from_fleet("bundles.activate", bundle, collection, ray, json)
        return
    from fullrank.bundle.catalog import resolve

    check_not_sharded(bundle)
    path = resolve(Path(bundle))
    name = path.parent.name if collection else None
    _activate(path.parent.parent, path.name, timeout, json, name)


def rollback(
    bundles: Annotated[
        str, typer.Argument(metavar="BUNDLES", help="Folder of bundles that is served.")
    ],
    collection: OfCollection = None,
    timeout: Timeout = 120,
    ray: RayOption = None,
    json: Json = False,
) -> None:
    """Serve the previous version again."""
    if ray is not None:
        _from_fleet("bundles.rollback", bundles, collection, ray, json)
        return
    with needs("service"):
        from fullrank_service.models.state import read_state

    root = Path(bundles)
    state = read_state(root)
    state = None if state is None else state.of(collection)
    if state is None or state.previous is None:
        raise BundleNotFound(f"{bundles}: no previous version was served before this one")
    for path in root.glob(f"*/{state.previous}"):
        check_not_sharded(str(path))
    _activate(root, state.previous, timeout, json, collection)


def _from_fleet(
    command: str, address: str, collection: str | bool | None, ray: str, json: bool
) -> None:
    found = load(command, FLEET)(address, collection, address=ray)
    facts = {"generation": found.generation, "version": found.version}
    if json:
        print_json(facts)
    else:
        typer.echo(f"generation {found.generation} serves {found.version} from the fleet")


def _activate(
    bundles: Path, version: str, timeout: float, json: bool, collection: str | None = None
) -> None:
    with needs("service"):
        from fullrank_service.models.swap import Swap

    swapped = Swap(bundles, timeout_s=timeout).activate(version, collection)
    if json:
        print_json(asdict(swapped))
        return
    workers = f"{swapped.workers} worker{'s' * (swapped.workers != 1)}"
    typer.echo(f"generation {swapped.generation} serves {swapped.version} in {workers}")
    if not swapped.converged:
        typer.echo("not every worker has confirmed the switch yet", err=True)


def compact(
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE",
            help="A version's folder, or BUNDLES/NAME; of a sharded bundle also an address, such as s3://bundles/NAME.",
        ),
    ],
    documents: DocumentsOption = None,
    activate: Annotated[
        bool,
        typer.Option(
            help="Activate the new version if the version that it is made from is active."
        ),
    ] = True,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", help="Longest wait for the workers.", min=0.1),
    ] = 120,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Compact a sharded bundle on this Ray cluster, and serve it from its fleet: auto, HOST:PORT or local. "
            "Without --ray, this process compacts the bundle and activates nothing.",
        ),
    ] = None,
    keep: KeepOption = None,
    json: Json = False,
) -> None:
    """Write a bundle's live documents into a new version of it, and serve that version.

    BUNDLES/NAME means the version that serves, or else the newest. Operations that every version on disk contains are
    removed from the log.
    """
    if ray is not None or is_sharded(bundle):
        if documents is not None:
            raise FullrankError(
                "--documents: the live documents of a sharded bundle are in the log of FULLRANK_DOCUMENTS_URL"
            )
        if keep is not None:
            raise FullrankError("--keep: versions of sharded bundles are not removed")
        _compact_set(bundle, ray, activate, json)
        return
    from fullrank.bundle.catalog import absolute, resolve

    with needs("service"):
        from fullrank_service.base.settings import Settings
        from fullrank_service.documents.compact import compact as write
        from fullrank_service.documents.compact import trim
        from fullrank_service.documents.sqlitelog import LogPlace, place_of
        from fullrank_service.models.swap import Swap, serving_version

    path = resolve(Path(bundle))
    root, name = path.parent.parent, path.parent.name
    serving = serving_version(root, name)
    if absolute(Path(bundle)) != path and serving is not None and (root / name / serving).is_dir():
        path = root / name / serving
    log = LogPlace.of_file(documents) if documents else place_of(Settings(), root)
    with Reporter(as_json=json) as report, report.callback() as progress:
        made = write(path, log, progress)
    swapped = None
    # Another version that was activated meanwhile stays active; workers that start later load the newest.
    serving = serving_version(root, name)
    if activate and serving is not None:
        swap, version = Swap(root, timeout_s=timeout), made.path.name
        is_default = serving == serving_version(root)
        own = None if is_default else name
        swapped = swap.activate(version, own) if serving == made.parent else swap.load(version)
    prune_after(root, name, keep)
    removed = trim(root, name, log)
    if json:
        generation = None if swapped is None else swapped.generation
        print_json({**made.as_dict(), "generation": generation, "removed": removed})
        return
    typer.echo(f"{made.path}: {made.documents} documents (was {made.before})")
    if swapped is not None:
        typer.echo(f"generation {swapped.generation} serves {swapped.version}")


def _compact_set(bundle: str, ray: str | None, activate: bool, json: bool) -> None:
    made = load("bundles.compact", FLEET)(bundle, address=ray, activate=activate)
    if json:
        print_json(made)
        return
    typer.echo(f"{made['path']}: {made['documents']} documents (was {made['before']})")
    if made["generation"] is not None:
        typer.echo(f"generation {made['generation']} serves {made['version']} from the fleet")
    else:
        typer.echo("no fleet serves it yet: fullrank bundles activate --ray", err=True)


KeepOption = Annotated[
    int | None,
    typer.Option(
        "--keep",
        metavar="N",
        help="Then prune: keep this many of the newest versions; default: remove none.",
        min=1,
    ),
]


def prune(
    bundles: BundlesFolder,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only versions of this name.")
    ] = None,
    keep: Annotated[
        int, typer.Option(metavar="N", help="Newest versions of each name to keep.", min=1)
    ] = 5,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    json: Json = False,
) -> None:
    """Remove old versions of bundles, and unfinished ones that killed commands left.

    The active version, the one before it, the candidate of an experiment and versions that a running service has loaded
    are always kept.
    """
    with needs("service"):
        from fullrank_service.models import retention

    removed = retention.prune(bundles, name, keep=keep, dry_run=dry_run)
    total = sum(one.bytes for one in removed)
    if json:
        rows = [{"path": str(one.path), "bytes": one.bytes} for one in removed]
        print_json({"dry_run": dry_run, "bytes": total, "removed": rows})
        return
    did = "would remove" if dry_run else "removed"
    for one in removed:
        typer.echo(f"{did} {one.path}  {one.bytes / 1e6:.1f} MB")
    typer.echo(f"{did} {len(removed)} folders, {total / 1e6:.1f} MB")


def prune_after(bundles: Path, name: str, keep: int | None) -> None:
    """Do what the option --keep of another command asks for; stderr names what was removed."""
    if keep is None:
        return
    from fullrank_service.models import retention

    for one in retention.prune(bundles, name, keep=keep):
        typer.echo(f"removed {one.path}  {one.bytes / 1e6:.1f} MB", err=True)
