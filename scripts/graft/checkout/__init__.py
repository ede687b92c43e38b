"""Write what a working tree or a branch of PyTorch changes as a native folder.

Git and the files of the checkout are only read. The changes since the commit that the installed torch was built from,
or the nearest one, become a native folder in the cache. Each statement keeps its line in the checkout, so that messages
name the user's files. The other packages build that folder like any other.

``repository`` asks git, ``base`` decides which commit to compare with, ``versions`` has both versions of each file.
``derive`` sorts the differences and has each kind taken: ``compiled`` takes C++ (``code`` finds what changed,
``headers`` which headers can replace torch's, ``callers`` which sources use them, ``lacking`` what no wheel has),
``operators`` and ``formulas`` take entries of YAML files (``changed_entries``, ``entry_lines``), ``python`` takes
Python files (``changed_python``, ``python_operators``, ``registrations``). Each returns what it found as an ``answer``,
from what it is given, and ``derive`` joins these. ``read`` writes it for a torch and waits for the next edit, ``live``
is what a command builds from it, ``tests`` finds PyTorch's own tests. ``branch`` is ``make import``.
"""
