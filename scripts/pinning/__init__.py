"""``make pin``: write down a release of PyTorch, so that it can be built upon, and report what is new in it."""
