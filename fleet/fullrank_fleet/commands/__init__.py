"""What commands of other packages run when ``--ray`` names a cluster."""

from fullrank_fleet.cluster import prepare

# Before a command imports the actors, and with them Ray.
prepare()
