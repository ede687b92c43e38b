"""What becomes of the memory that is freed between calls."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable, Iterable

# malloc.h's names.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

# So many calls in turn, each of fewer new pages, show that there is a place for all; or so many calls are enough.
_SETTLED_CALLS, _FEW_PAGES, _MOST_CALLS = 3, 256, 20


def keep_memory() -> None:
    """Ask glibc to keep what is freed, by mallopt(3), up to 2 GB.

    By default it gives the memory of a large tensor back to the system, and the next call takes it again page by page,
    or not, as it happens to lie. That can cost more than the call, and falls on one side or the other.

    Raises:
        OSError: it refuses.
    """
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in ((_M_TRIM_THRESHOLD, 2**31 - 1), (_M_MMAP_MAX, 0)):
        if mallopt(parameter, value) != 1:
            raise OSError(f"mallopt({parameter}, {value}) failed")


def settle(functions: Iterable[Callable[[], object]]) -> bool:
    """Call ``functions`` until the memory of each is there.

    A small tensor in the place of a large one that was freed leaves too little for the next large one, which is taken
    from the system even where what is freed is kept. After some calls there is a place for each.

    Returns:
        whether it is so.
    """
    settled = 0
    for _ in range(_MOST_CALLS):
        before = _page_faults()
        for function in functions:
            function()
        settled = settled + 1 if _page_faults() - before < _FEW_PAGES else 0
        if settled == _SETTLED_CALLS:
            return True
    return False


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
