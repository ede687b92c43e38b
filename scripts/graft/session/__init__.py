"""Operators in the running process: ``graft.load`` and its relatives."""
