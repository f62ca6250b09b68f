"""Serve a sharded bundle: a router answers HTTP, shards rank.

wire.py        what router and shards send each other
transport.py   the protocol by which a router asks shards; in this process, for tests
shard.py       ShardServer: answers for the documents of one shard
"""
