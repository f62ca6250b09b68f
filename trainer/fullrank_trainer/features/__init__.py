"""Turn counted text into the matrices that a fit works on."""
