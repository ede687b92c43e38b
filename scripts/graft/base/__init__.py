"""The base: the PyTorch that operators are added to, downloaded and unpacked, and its symbols."""
