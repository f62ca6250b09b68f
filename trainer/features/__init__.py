"""From counted text to the matrices that a fit works on."""
