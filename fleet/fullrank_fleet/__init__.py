"""Fullrank on many machines, on Ray core. No other package imports this one, or Ray.

partitions.py   which shard owns a document
sets/           the sharded bundle: a folder of ordinary bundles and set.json
remote/         folders in object storage, and the cache of bundles on each machine
cluster.py      join a Ray cluster with the settings that Fullrank needs
jobs/           index a corpus shard by shard
serving/        a router over the shards of a sharded bundle
counting/       document frequencies as map-reduce
training/       training by slices
commands/       what ``fullrank index --ray`` and its siblings run
"""

import os

# Ray reads it when it is imported. A call outside of a cluster would make Ray look for one, or start one, and hold up
# all threads meanwhile.
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
