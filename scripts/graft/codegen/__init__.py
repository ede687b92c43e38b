"""Code generation with the base's own torchgen.

It runs in a separate process (``python -m graft.check``; for a source tree ``python -m graft.codegen``) whose import
path has the base wheel's ``torchgen``, so the base's own generator writes the code. torchgen parses the *merged* YAML,
because an operator's registrations depend on the other operators, and then writes

* headers for the merged set, where they differ from the base's,
* sources for the new operators only.

``torchgen`` is the only module that imports torchgen; compare it with each new release. ``base_operators`` has those
of PyTorch, ``operators`` the merged ones. ``headers``, ``sources``, ``rules`` and ``bindings`` write C++; ``describe``
writes the ``description`` that the rest of the builder reads. ``lists`` extends torchgen's lists of names. ``show``
generates for one operator, to be read.
"""

# Generated files: parts of headers for the compilers, and the description of the operators.
FRAGMENTS = "fragments.json"
DESCRIPTION = "operators.json"

# The headers in ATen that include one header for each operator, and the suffix in the names of those headers.
OPERATOR_HEADERS = {"Functions": "", "NativeFunctions": "_native", "Operators": "_ops"}

# The folders of a unit with such headers: what its sources name, and what its formulas name in addition.
NARROW, NARROW_OF_FORMULAS = "narrow/operators", "narrow/formulas"

# The unit that replaces kernels and formulas of the base, and the one that calls operators which are defined elsewhere.
# No operator has such a name.
REPLACED, DECLARED = "Replaced__", "Declared__"

# Printed when the sources are complete, so that compilation can start before the rest is generated.
SOURCES_ARE_THERE = "sources are there"

# What the generator writes for CUDA: registrations of the folder's kernels, or of an error for each kernel that is not
# compiled. For a CPU base there is nothing to register.
KERNELS, MISSING, NO_CUDA = "kernels", "missing", "no"

# The parts of ``library.cpp``, which are compiled separately where edits matter: derivative formulas, autograd's nodes
# and kernels if there are many, and the rest.
PARTS = ("formulas", "autograd", "operators")

# The source of the Python classes of autograd nodes.
NODES = "nodes.cpp"
