"""Generate the skeleton of a new operator from its schema.

It runs in a separate process (``python -m graft.new``) whose import path has the base wheel's ``torchgen``, like
``graft.codegen``: torchgen determines the C++ signature of a schema. This process prints the texts, and ``new_op``
writes them into the native folder.
"""
