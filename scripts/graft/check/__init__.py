"""Find all errors in native folders in one run, before a compiler runs, each with its place.

torchgen decides what is valid wherever it can. This package adds the place in the user's file and a remedy, and checks
what torchgen does not. Read ``entries`` (YAML with positions), then ``functions``, ``derivatives`` and ``kernels``.
``run`` is called by the builder: torchgen is in the base's tree, so checks run in a separate process.
"""
