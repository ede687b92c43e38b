"""Keep freed memory between calls."""

from __future__ import annotations

import ctypes
import resource
from collections.abc import Callable, Iterable

# malloc.h's names.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4

# Stop when this many calls in turn needed fewer new pages, or after this many calls.
_SETTLED_CALLS, _FEW_PAGES, _MOST_CALLS = 3, 256, 20


def keep_memory() -> None:
    """Make glibc keep freed memory, up to 2 GB, with mallopt(3).

    By default it returns the memory of a large tensor to the system, depending on its position, and the next call gets
    it again page by page. That can take longer than the call, and distort the comparison.

    Raises:
        OSError: mallopt failed.
    """
    mallopt = ctypes.CDLL(None).mallopt
    for parameter, value in ((_M_TRIM_THRESHOLD, 2**31 - 1), (_M_MMAP_MAX, 0)):
        if mallopt(parameter, value) != 1:
            raise OSError(f"mallopt({parameter}, {value}) failed")


def settle(functions: Iterable[Callable[[], object]]) -> bool:
    """Call ``functions`` until they need no new memory.

    A small tensor in the place of a large one leaves too little space for the next large one, which then needs new
    memory even if freed memory is kept. After some calls there is space for each.

    Returns:
        this is the result
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
