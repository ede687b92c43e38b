"""What a working tree or a branch of PyTorch changes, as a native folder.

Git and the files of the checkout are only read. What is changed against the commit that the installed torch was built
from, or the nearest one, is written as a native folder into the cache: each statement at the line that it has in the
checkout, so that messages name the user's files. All else builds that folder as any other.

``repository`` asks git, ``base`` decides which commit to compare with, ``versions`` has both versions of each file.
``derive`` sorts what differs, and lets each kind be taken: ``compiled`` C++ (``statements``, ``code`` tell what a
statement changes, ``headers`` what can be laid over torch's, ``callers`` who uses it, ``lacking`` what no wheel has),
``operators`` and ``formulas`` the entries of YAML files (``changed_entries``, ``entry_lines``), ``python`` the rest
(``changed_python``, ``python_operators``, ``registrations``); ``answer`` is the result. ``read`` writes it for a
torch, and waits for the next edit; ``live`` is what a verb builds of it; ``tests`` finds PyTorch's own tests.
``branch`` is ``make import``.
"""
