"""``make fuzz``: random calls of the operators, right and wrong, that must end in a result or a plain error.

Runs in an environment that holds the rebuilt wheel (``python -m scripts.measure.fuzz``), best the one of ``make
test-sanitize``. ``tensors`` describes a tensor and makes it, ``corpus`` finds right calls, ``calls`` makes others of
them, ``judge`` makes a call and judges what comes; ``worker`` does so for one seed after the other, and ``__main__``
watches it, since what is looked for may end the process.
"""
