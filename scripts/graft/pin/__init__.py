"""``make pin``: write the pin of a PyTorch release, so that it can be a base."""
