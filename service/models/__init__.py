"""Which bundle serves, in every worker at once.

registry.py    the models of one worker as the rest of the service sees them
serving.py     what a worker holds and serves, replaced by one assignment
follower.py    the thread that follows the notes: prepares, switches, reports
policy.py      what to load and what to switch to, decided without doing it
loader.py      from a version to a bundle that may serve; memory.py  whether it fits
swap.py        the hot swap over all workers, in two phases
state.py       the notes beside the bundles: what serves, what is proposed
workers.py     what each worker says of itself, in a file that lives as long as it does (livefile.py)
"""
