"""``make test`` and related targets: environments, pytest, sanitizers, linters."""
