# get_testing_overrides() is a list kept by hand, and every function that can be overridden must be on it.
from torch import _added_operators


def _with_added_operators(upstreams):
    """Make ``get_testing_overrides`` one that knows the operators that were added to this torch."""

    @functools.lru_cache(None)
    @functools.wraps(upstreams)
    def get_testing_overrides():
        stand_ins = {_added_operators.resolve(name): each for name, each in _added_operators.FUNCTIONS.items()}
        # A method's own stand-in goes before that of a function of upstream's whose name is alike.
        return {**upstreams(), **stand_ins}

    return get_testing_overrides


get_testing_overrides = _with_added_operators(get_testing_overrides)
