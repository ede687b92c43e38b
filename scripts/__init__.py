"""Graft: build native ATen operators into an official PyTorch wheel.

Read the modules in the order in which data flows through them::

    pin, native      what goes in: the pinned PyTorch and the folder of operators
    fetch, base      the official wheel, checked and laid out
    patches, merge   upstream files with our edits, YAML with the new entries
    codegen          the wheel's own torchgen, run on the merged YAML
    additions        text behind that of torch's Python files: the folder's own and what is generated
    compile, link    the new sources only, against the wheel's own libraries
    pack             base wheel + changed files = new wheel

``graft`` runs them in that order; ``__main__`` is the command line. ``check`` looks for mistakes before all that,
``new_op`` and ``scaffold`` write the first text of an operator, ``source`` puts the same patches and the same
folder into a whole PyTorch checkout, and ``cuda`` compiles what the folder has for CUDA.
"""
