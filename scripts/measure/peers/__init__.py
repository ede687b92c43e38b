"""``make bench-peers``: Graft beside the other ways to add an operator, in one run.

calls.py measures what needs a torch with the operators, in its environment; run.py adds the times of builds and makes
the table.
"""
