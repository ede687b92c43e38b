"""Graft: build native ATen operators into an official PyTorch wheel.

The packages are the stages of a build, in the order in which data flows through them::

    inputs     the pin and its patches, native folders, the compiler: read once, into a snapshot whose hash is the stamp
    base       the official wheel: fetched, verified, laid out; or the torch that is installed; its symbols and torchgen
    generate   what torchgen makes of the merged YAML: sources in units, headers, a description of the operators
    compile    units and kernels to objects, objects to libraries
    compose    each file of the wheel that differs from the base's, from its layers, in one pass
    deliver    a wheel of torch, a tree beside the torch that is installed, or a thin wheel

``graft``, ``develop`` and ``thin`` are the builds, one for each delivery; ``stages`` runs the stages until all is
linked, and ``common`` is what all of them use. Nothing after ``inputs`` reads the user's files. Beside the build stand
``check`` (mistakes of a native folder), ``scaffold`` (the first text of an operator), ``pinning`` (the pin of a
release), ``source`` (the same folder in a PyTorch checkout), ``testing`` (make test and its relatives), ``matrix``
(several pins and Pythons) and ``measure`` (benchmarks, surfaces, random calls). ``__main__`` is the command line,
``environment`` makes the virtual environment that it runs in.
"""
