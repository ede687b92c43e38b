"""Operators in the running process: what ``import graft`` offers."""
