"""Find all errors in native folders in one run, before a compiler runs, each with its place.

torchgen decides what is valid wherever it can, and the compiler whether formulas are. This package adds the place in
the user's file and a remedy, and checks what both accept. Read ``schemas``, ``derivatives`` and ``kernels``.
``run`` is called by the builder: torchgen is in the base's tree, so checks run in a separate process.
"""
