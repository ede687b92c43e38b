# get_testing_overrides() is a handwritten list that must contain every function that can be overridden.
from torch import _added_operators


def _with_added_operators(upstreams):
    """Extend ``get_testing_overrides`` with the operators added to this torch."""

    @functools.lru_cache(None)
    @functools.wraps(upstreams)
    def get_testing_overrides():
        stand_ins = {_added_operators.resolve(name): each for name, each in _added_operators.FUNCTIONS.items()}
        # A method's own stand-in precedes that of an upstream function with a similar name.
        return {**upstreams(), **stand_ins}

    return get_testing_overrides


get_testing_overrides = _with_added_operators(get_testing_overrides)
