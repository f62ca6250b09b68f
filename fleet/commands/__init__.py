"""What commands of other packages run when ``--ray`` names a cluster."""
