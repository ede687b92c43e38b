# The parameters of kernels, as in api/cpp.py.
from torchgen.api.cpp import _write_optionals

argumenttype_type = _write_optionals(argumenttype_type)
