"""Several pins and Pythons: ``make wheels`` and ``make test-matrix``.

Each pair is a row. It is built and tested by the verbs for one pin, in processes of its own Python.
"""
