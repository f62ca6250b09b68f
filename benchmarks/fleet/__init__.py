"""Capacity of a fleet: how many machines, and how long an answer or a count takes.

fanout.py        simulate requests that wait for the slowest of many shards
serving.py       what a fleet on this machine adds to one process; router.py starts its router
counting.py      what counting takes from the driver of a training
swaps.py         swaps under searches, again and again
faults.py        replicas killed and frozen under searches, a whole shard lost
recording.py     the processor time of shards of several sizes, into recorded.json
click_bytes.py   what a click takes in the gzipped log
inputs.py        the inputs of the model, read from the pages that publish them
capacity.py      the model: bytes, cores and money for a number of documents and clicks; the simulation replays
                 recorded times
tables.py        its tables in docs/scale.md
"""
