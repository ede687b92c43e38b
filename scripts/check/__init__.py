"""Find the mistakes of native folders before a compiler runs, all of them in one run, each with its place.

torchgen judges what is valid wherever it can; this package gives its judgement a place in the user's file and a remedy,
and adds what torchgen does not look at. Read ``entries`` (YAML with positions), then ``functions``, ``derivatives`` and
``kernels``. ``run`` is the builder's side: torchgen lies in the base's tree, so checks run in a process of their own.
"""
