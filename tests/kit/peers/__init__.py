"""``make bench-peers``: compare Graft with the other ways to add an operator, in one run.

calls.py measures what needs a torch with the operators, in its environment. run.py adds the times of builds and writes
the table.
"""
