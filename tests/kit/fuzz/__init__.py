"""``make fuzz``: random calls of the operators, valid and invalid, that must return or raise a clear error.

``tensors`` describes and creates tensors, ``valid`` collects valid calls, ``calls`` draws changes of them with
hypothesis, and ``judge`` makes a call and checks its outcome. ``__main__`` does this in a process that ends with the
first finding, and starts it again.
"""
