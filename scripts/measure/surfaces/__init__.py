"""``make surfaces``: where an operator shows up, measured beside operators of PyTorch's own.

Runs in an environment that holds the rebuilt wheel (``python -m scripts.measure.surfaces``). ``subject`` is an operator
with its samples; ``python``, ``autograd``, ``dispatch``, ``compilers`` and ``elsewhere`` hold the surfaces, each a
function that fails or not; ``table`` calls them all and compares.
"""
