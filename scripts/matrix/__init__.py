"""Several pins and Pythons: ``make wheels`` and ``make test-matrix``.

Each pair is a row, built and tested by the verbs of one, in processes of its own Python.
"""
