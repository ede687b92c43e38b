# Upstream lists the combinations of results that its operators have. The template of wrap_outputs.h takes all of these.
import re

_RESULT = r"(at::Tensor|at::Scalar|bool|double|int64_t|::std::vector<at::Tensor>)"


class _Returnable(frozenset):
    """The C++ types that Python functions can return."""

    _several = re.compile(rf"::std::tuple<{_RESULT}(,{_RESULT})*>")

    def __contains__(self, text):
        return super().__contains__(text) or bool(self._several.fullmatch(str(text)))


SUPPORTED_RETURN_TYPES = _Returnable(SUPPORTED_RETURN_TYPES)
