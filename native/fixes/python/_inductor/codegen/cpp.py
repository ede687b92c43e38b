# pytorch#193753 in compiled code: vectors use Sleef's fmod, which is nan where a / b overflows, and for the remainder
# a - floor(a / b) * b, which also has no digit left where a / b needs more of them than the dtype has. Here each lane
# is computed with std::fmod.
def _scalar_remainder(a, b):
    function = "[](auto x, auto y) { auto r = std::fmod(x, y); return r != 0 && (y < 0) != (r < 0) ? r + y : r; }"
    return f"{function}({a}, {b})"


_remainder_of_integers = CppVecOverrides.remainder
_remainder_of_floats = CppVecOverrides._scalarize(_scalar_remainder)


def _remainder(a, b):
    return (_remainder_of_integers if is_integer_dtype(a.dtype) else _remainder_of_floats)(a, b)


CppVecOverrides.fmod = staticmethod(CppVecOverrides._scalarize(CppOverrides.fmod))
CppVecOverrides.remainder = staticmethod(_remainder)
