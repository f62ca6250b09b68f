"""Serve a sharded bundle: a router answers HTTP, shards rank.

shard.py       ShardServer: the versions of one shard that a process has open
answering.py   what one open shard answers: the ordinary search of its bundle
columns.py     the fields of a set, so that every shard checks a request as the whole would
log.py         the log of live documents, which routers write and shards follow
wire.py        what router and shards send each other
transport.py   the protocol by which a router asks shards; in this process, for tests
fanout.py      ask several shards at once, each through its replicas
replicas.py    ask one of several replicas of a shard, and another one if the first is slow or fails
breaker.py     when a replica that has failed is asked again
batching.py    requests that wait for a replica, in one call
actors.py      replicas and the coordinator as Ray actors
waiting.py     wait for another process for as long as it answers pings
tracking.py    which versions each replica has loaded, and whether it answers
routers.py     the routers that follow a coordinator
coordinator.py the only writer of active.json: which version serves, and which replicas answer
following.py   a router follows the coordinator
rejoining.py   join the cluster again after its head was started again
head.py        what a router has of a set: its model and its fields
asking.py      ask the shards for one request, and account for those that do not answer
merge.py       the answers of shards as one
pages.py       fill the placements of a page, asking shards
engine.py      rank the documents of a set
documents.py   read and write the documents of sets
models.py      the sets that a router has loaded
app.py         the HTTP service over all of this
ray_app.py     the same in a worker process of a cluster
"""
