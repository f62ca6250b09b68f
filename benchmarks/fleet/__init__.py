"""Capacity of a fleet: how many machines, and how long an answer or a count takes.

fanout.py    simulate requests that wait for the slowest of many shards
serving.py   what a fleet on this machine adds to one process; router.py starts its router
counting.py  what counting takes from the driver of a training
swaps.py     swaps under searches, again and again
faults.py    replicas killed and frozen under searches, a whole shard lost
capacity.py  the model: bytes, cores and money for a number of documents and clicks, checked by the simulation
"""
