"""Choose the bundle that serves, in all workers at once.

registry.py    the models of one worker, for the rest of the service
follower.py    what a worker has loaded and serves, and the thread that follows the state files
policy.py      what to load and what to switch to, as pure functions
swap.py        the hot swap over all workers, in two phases
state.py       the files next to the bundles: the active version and the proposed one
workers.py     the report of each worker, in a file that is valid while it lives (livefile.py)
"""
