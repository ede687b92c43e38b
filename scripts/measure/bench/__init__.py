"""``make bench``: each operator beside what a user would pick instead of it.

``operators`` holds a module for each operator that lists its cases; ``case`` says what a case is, ``measure`` times
both sides of one, ``report`` writes the results as JSON, a table and a plot. Runs in an environment of its own, which
``environment`` makes, with the rebuilt wheel.
"""
