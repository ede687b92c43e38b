"""``make bench``: models with our depthwise layers, and each operator beside what a user would pick instead of it.

``models`` lists the cases of whole models, ``operators`` holds a module for each operator that lists its own;
``case`` says what a case is, ``processor`` what it is measured on, ``measure`` times both sides of one, ``report``
writes the results as JSON, tables and a plot. Runs in an environment of its own, which ``environment`` makes, with the
rebuilt wheel.
"""
