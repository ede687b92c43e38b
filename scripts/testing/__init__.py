"""make test and its relatives: environments, pytest, sanitizers, linters."""
