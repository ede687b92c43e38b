"""The source build: the same patches and the same native folder, on a whole PyTorch checkout.

``tree`` is the checkout as a git repository, ``stack`` makes commits beside it, ``placing`` says where native files go
and ``added`` generates the Python file that names the operators. ``apply`` puts them together; ``export`` writes the
result as mails.
"""
