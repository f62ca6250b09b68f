"""The linear family: supervised semantic indexing in all its forms, LSI, towers."""
