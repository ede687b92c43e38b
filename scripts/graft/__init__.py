"""Graft: build native ATen operators into an official PyTorch wheel.

The packages are the stages of a build, in the order in which data flows through them::

    inputs     the pin and its patches, native folders, the compiler: read once, into a snapshot whose hash is the stamp
    base       the official wheel: fetched, verified, laid out; or the torch that is installed; its symbols and torchgen
    generate   what torchgen makes of the merged YAML: sources in units, headers, a description of the operators
    compile    units and kernels to objects, objects to libraries
    compose    each file of the wheel that differs from the base's, from its layers, in one pass
    deliver    a wheel of torch, a tree beside the torch that is installed, or a thin wheel

``graft``, ``develop`` and ``thin`` are the builds, one for each delivery. ``stages`` runs the stages up to the linked
libraries, and ``common`` is what all of them share. Nothing after ``inputs`` reads the user's files. The other packages
support the build: ``check`` (finds errors in a native folder), ``scaffold`` (writes the skeleton of an operator),
``pinning`` (writes the pin of a release), ``source`` (builds the same folder in a PyTorch checkout), ``testing`` (runs
the tests), ``matrix`` (builds for several pins and Pythons) and ``measure`` (benchmarks, surfaces, random calls).
``__main__`` is the command line, ``environment`` creates the virtual environment that it runs in.
"""
