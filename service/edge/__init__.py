"""What stands between a connection and a route: who calls, how much, how long, and is it what it says it is.

protocol.py    one connection: an end to every wait, refusals without a task
middleware.py  request id, body cap, metrics, safety headers, the last resort for errors
guard.py       what stands before a route: scope, content type, room
access.py      who may call what: scopes of routes, callers without a key
keys.py        the file of hashed keys, followed while it changes
admission.py   slots sized by the measured time, deadlines, the rate of a client
limits.py      the caps of the settings, checked before any work
body.py        JSON read strictly
drain.py       SIGTERM: readyz first, then the door
"""
