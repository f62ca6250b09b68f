"""The sharded bundle: a folder of ordinary bundles, and a ``set.json`` that is written last.

<root>/<name>/<version>/shard-00007/manifest.json …   an ordinary bundle
<root>/<name>/<version>/set.json                       which shard has which documents

manifest.py   SetManifest: the fields of set.json
folder.py     read_set, write_set, find_set, newest_set
"""

from fleet.sets.folder import find_set, newest_set, read_set, write_set
from fleet.sets.manifest import SetManifest, Shard, shard_folder

__all__ = [
    "SetManifest",
    "Shard",
    "find_set",
    "newest_set",
    "read_set",
    "shard_folder",
    "write_set",
]
