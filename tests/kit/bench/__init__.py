"""``make bench``: time models, and each operator compared with its alternatives.

``operators``, ``roi_pool``, ``depthwise`` and ``models`` list cases. ``case`` describes one and measures it. ``report``
writes the results as JSON and tables, ``plot`` draws them. ``peers`` measures other ways to add an operator, for
``make bench-peers``. All run in an environment with the rebuilt wheel.
"""
