"""The base: the PyTorch that operators are added to. It is downloaded, verified and unpacked, and its symbols are
indexed.
"""
