# Inductor decomposes what is composed of other operators, unless it has got kernels.
from torch import _added_operators

for _name, _what in _added_operators.REPLACED.items():
    _op = torch._library.utils.lookup_op(_name)
    if _op._can_decompose() and {*_what} - {"CompositeImplicitAutograd", "Meta", "derivatives"}:
        decompositions.pop(_op, None)
