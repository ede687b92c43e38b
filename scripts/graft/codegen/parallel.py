"""Run part of the work in a forked process, which shares everything parsed so far."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .writer import Output


@contextmanager
def alongside(work: Callable[[], None], *outputs: Output) -> Iterator[None]:
    """Run ``work`` in a forked process while the body runs, then add the files that it wrote to ``outputs``.

    A fork has the parsed operators already; parsing them again would take longer than ``work``.

    Raises:
        ValueError: ``work`` raised an error; with its message.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def run() -> None:
        answer: tuple[str, list[Any]]
        try:
            work()
            answer = ("", [output.names for output in outputs])
        except Exception as error:
            answer = (str(error) or type(error).__name__, [])
        sender.send(answer)

    process = context.Process(target=run)
    process.start()
    sender.close()
    yield
    try:
        message, names = receiver.recv()
    except EOFError:
        message, names = "the forked process ended early", []
    process.join()
    if message:
        raise ValueError(message)
    for output, written in zip(outputs, names, strict=True):
        output.names |= written
