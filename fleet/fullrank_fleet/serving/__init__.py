"""Serve a sharded bundle: a router answers HTTP, shards rank.

shard.py         ShardServer: the versions of one shard that a process has open
answering.py     what one open shard answers: the ordinary search of its bundle
wire.py          what router and shards send each other
asking.py        ask the shards for one request, and account for those that do not answer
fanout.py        ask several shards at once, each through its replicas
replicas.py      ask one of several replicas of a shard: batches, hedging, a circuit breaker
actors.py        replicas and the coordinator as Ray actors
waiting.py       wait for another process for as long as it answers pings
tracking.py      which versions replicas and routers have loaded, and whether they answer
coordinator.py   the only writer of active.json: which version serves, and which replicas answer
following.py     a router follows the coordinator, and has its sets loaded
head.py          what a router has of a set: its model and its fields
merge.py         the answers of shards as one
engine.py        rank the documents of a set, and fill the placements of a page with them
documents.py     read and write the documents of sets, in the log that routers write and shards follow
app.py           the HTTP service over all of this
ray_app.py       the same in a worker process of a cluster, which joins again after its head was started again
"""
