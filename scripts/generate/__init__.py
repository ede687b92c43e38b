"""Code generation with the wheel's own torchgen.

Runs as a process of its own (``python -m scripts.generate``) whose import path holds the base wheel's ``torchgen``:
what generates the code is the very generator the base was built with. torchgen parses the *merged* YAML, because an
operator's registrations depend on its neighbours, and then writes

* headers for the merged set, where they differ from the base's,
* sources for the new operators only.
"""

# What compilers, and those who write Python files, read of what is generated.
FRAGMENTS = "fragments.json"
DESCRIPTION = "operators.json"

# Printed as soon as the sources are complete, so that compilers need not wait for the rest.
SOURCES_ARE_THERE = "sources are there"

# What the generator does about CUDA: a folder's kernels are registered, or an error in place of each where they are not
# compiled; on a base for CPUs there is nothing to register.
KERNELS, MISSING, NO_CUDA = "kernels", "missing", "no"
