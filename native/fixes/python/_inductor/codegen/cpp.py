# pytorch#193753 in compiled code: vectors use Sleef's fmod, which is nan where a / b overflows, and a - floor(a / b) * b for
# the remainder, which also has no digit left where a / b has more than the dtype. Each lane is computed with std::fmod.
def _remainder_in_scalars(a, b):
    return f"[](auto x, auto y) {{ auto r = std::fmod(x, y); return r != 0 && (y < 0) != (r < 0) ? r + y : r; }}({a}, {b})"


def _remainder(a, b, _of_integers=CppVecOverrides.remainder, _of_floats=CppVecOverrides._scalarize(_remainder_in_scalars)):
    return (_of_integers if is_integer_dtype(a.dtype) else _of_floats)(a, b)


CppVecOverrides.fmod = staticmethod(CppVecOverrides._scalarize(CppOverrides.fmod))
CppVecOverrides.remainder = staticmethod(_remainder)
