"""Operators that are exchanged while threads call them, and what many exchanges cost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from clipped import variant
from sessions import Session

# Exchanges what was built, without a build.
TOOLS = """
import gc, os, threading, warnings
from pathlib import Path
from graft.session import loads

def built():
    return loads.state().loads["clipped"].built

def exchange(times, versions):
    for number in range(times):
        loads.use("clipped", versions[number % len(versions)])

def memory():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

def descriptors():
    return len(os.listdir("/proc/self/fd"))

x = torch.tensor([3.0, -0.5, 0.25, 1.0], dtype=torch.double)

def result(function=lambda x: torch.soft_clip(x, 2)):
    leaf = x.clone().requires_grad_()
    value = function(leaf)
    value.sum().backward()
    return value.tolist(), leaf.grad.tolist()

def stress(work, right, change):
    wrong, calls, stop = [], [0] * 4, threading.Event()
    def run(number):
        try:
            while not stop.is_set():
                found = work()
                calls[number] += 1
                if found not in right:
                    wrong.append(found)
        except BaseException as error:
            wrong.append(repr(error))
    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads: thread.start()
    try:
        change()
    finally:
        stop.set()
        for thread in threads: thread.join()
    return wrong[:3], all(calls)
"""

BEGINNING = TOOLS
LOADED = "first = built()"


@pytest.mark.parametrize(
    ("name", "work", "times"),
    [
        pytest.param("kernel", "torch.soft_clip(x, 2).tolist()", 100, id="a kernel"),
        pytest.param("size", "torch.soft_clip(x, 2).tolist()", 100, id="a meta function"),
        pytest.param("header", "result(torch.twice)", 100, id="a kernel and backward"),
        pytest.param("formula", "result()", 12, id="a formula"),
    ],
)
def test_threads_find_the_old_operators_or_the_new_ones(session: Session, name: str, work: str, times: int) -> None:
    session.run(f"def work(): return {work}\nright = [work()]")
    session.load(variant(name))
    session.run("second = built(); right.append(work())")
    assert session.value("first != second and right[0] != right[1]")
    assert session.value(f"stress(work, right, lambda: exchange({times}, [first, second]))") == ([], True)


def test_threads_load_and_call(session: Session) -> None:
    session.run("right = [torch.soft_clip(x, 2).tolist()]")
    session.run("loading = threading.Thread(target=load, args=('kernel',))")
    assert session.value(
        "stress(lambda: (torch.soft_clip(x, 2)[1] / right[0][1]).round().item(), (1.0, 10.0),"
        " lambda: (loading.start(), load('kernel'), loading.join()))"
    ) == ([], True)
    assert session.value("(torch.soft_clip(x, 2)[1] / right[0][1]).round().item()") == 10.0


def test_load_while_another_thread_imports_dynamo(where: Path) -> None:
    """As the first step of an optimizer does. Half made, the module lacks what a load looks for."""
    with Session(where, "importlib, sys, threading, time, torch, graft") as session:
        session.run(
            "thread = threading.Thread(target=importlib.import_module, args=('torch._dynamo',)); thread.start()\n"
            "while '_initializing' not in vars(getattr(sys.modules.get('torch._dynamo'), '__spec__', type)): pass\n"
            "assert sys.modules['torch._dynamo'].__spec__._initializing"
        )
        session.load(variant("first"))
        session.run("thread.join()")
        assert session.value("torch.compile(torch.twice, backend='eager')(torch.ones(2)).tolist()") == [2.0, 2.0]


def test_many_exchanges_are_silent_and_small(session: Session) -> None:
    session.load(variant("kernel"))
    session.run(
        "second = built(); exchange(4, [first, second]); before, files = memory(), descriptors()\n"
        "warnings.simplefilter('always')\n"
        "exchange(100, [first, second])"
    )
    assert session.said() == ""
    assert session.value("(memory() - before) / 100 < 100_000"), session.run("(memory() - before) / 100")
    assert session.value("descriptors() - files") == 0


def test_memory_of_a_library_is_small(session: Session, where: Path) -> None:
    """A copy of what was built is another library, as that of an edit is."""
    session.load(variant("kernel"))
    built = Path(session.value("str(built())"))
    copies = [shutil.copytree(built, where / f"copies/{number}") for number in range(100)]
    session.run(f"copies = [Path(each) for each in {[str(each) for each in copies]!r}]; exchange(10, copies)")
    session.run(
        "before, files = memory(), descriptors(); right = torch.soft_clip(x, 2).tolist(); exchange(90, copies[10:])"
    )
    assert session.said() == ""
    assert session.value("(memory() - before) / 90 < 5_000_000"), session.run("(memory() - before) / 90")
    assert session.value("descriptors() - files") == 0
    assert session.value("torch.soft_clip(x, 2).tolist() == right")


def test_attributes_of_tensors_are_cached_as_before(session: Session) -> None:
    """Python stops caching the attributes of a type that changed too often, and each x.sum is slow from then on."""
    session.load(variant("kernel"))
    session.run(
        "def cached(): x.sum; return bool(torch.Tensor.__flags__ & 1 << 19)  # Py_TPFLAGS_VALID_VERSION_TAG\n"
        "second = built(); before = cached()\n"
        "for _ in range(60): exchange(20, [first, second]); x.sum"
    )
    assert session.value("before and cached()")
