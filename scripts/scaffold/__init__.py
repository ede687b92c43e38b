"""The first text of a new operator, made from its schema.

Runs as a process of its own (``python -m scripts.scaffold``) whose import path holds the base wheel's ``torchgen``, as
``scripts.generate`` does: which C++ signature a schema asks for is torchgen's to say. Nothing is written into the
native folder here; ``new_op`` does that with what this process prints.
"""
