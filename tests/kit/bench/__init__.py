"""``make bench``: time models with our depthwise layers, and each operator compared with its alternatives.

``models`` lists the cases of whole models, and ``operators`` has a module for each operator with its cases. ``case``
describes a case, ``processor`` the machine, ``measure`` times both sides of a case, and ``report`` writes the results
as JSON, tables and a plot. It runs in an environment created by ``environment``, with the rebuilt wheel.
"""
