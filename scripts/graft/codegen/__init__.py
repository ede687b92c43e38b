"""Code generation with the base's own torchgen.

It runs in a separate process (``python -m graft.codegen``) whose import path has the base wheel's ``torchgen``, so
the base's own generator writes the code. torchgen parses the *merged* YAML, because an operator's registrations depend
on the other operators, and then writes

* headers for the merged set, where they differ from the base's,
* sources for the new operators only.
"""

# The generated files that compilers, and the writers of Python files, read.
FRAGMENTS = "fragments.json"
DESCRIPTION = "operators.json"

# The headers in ATen that consist of includes of one header for each operator, with the suffix of its name.
OPERATOR_HEADERS = {"Functions": "", "NativeFunctions": "_native", "Operators": "_ops"}

# The unit with what replaces kernels and formulas of the base's operators. No operator has such a name.
REPLACED = "Replaced__"

# Printed when the sources are complete, so that compilation can start before the rest is generated.
SOURCES_ARE_THERE = "sources are there"

# What the generator writes for CUDA: registrations of the folder's kernels, or of an error for each kernel that is not
# compiled. For a CPU base there is nothing to register.
KERNELS, MISSING, NO_CUDA = "kernels", "missing", "no"
