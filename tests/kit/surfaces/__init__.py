"""``make surfaces``: compare where an operator shows up with PyTorch's own operators.

It runs in an environment with the rebuilt wheel (``python -m tests.kit.surfaces``). ``subject`` is an operator
with its samples. ``python``, ``autograd``, ``dispatch``, ``compilers`` and ``elsewhere`` define the surfaces, each a
function that raises or not. ``table`` calls all of them and compares.
"""
