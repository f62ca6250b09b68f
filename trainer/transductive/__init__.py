"""Half transductive ranking, and the eigenmaps it is measured against."""
