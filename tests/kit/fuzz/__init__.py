"""``make fuzz``: random calls of the operators, valid and invalid, that must return or raise a clear error.

It runs in an environment with the rebuilt wheel (``python -m tests.kit.fuzz``), preferably that of ``make
test-sanitize``. ``tensors`` describes and creates tensors, ``corpus`` collects valid calls, ``calls`` varies them, and
``judge`` makes a call and checks the outcome. ``worker`` does this for one seed after another. ``__main__`` monitors it
in another process, since a call may crash.
"""
