"""The source build: the same patches and the same native folder, on a whole PyTorch checkout.

``tree`` is the checkout as a git repository, ``stack`` makes commits beside it, ``placing`` says where native files go
and ``added`` generates the Python file that names the operators. ``apply`` puts them together and ``moving`` checks the
result out; ``export`` writes it as mails.

``fetch`` and ``debian`` get the pinned sources into ``cache``, and ``copies`` those of a user's checkout; ``settings``,
``configure`` and ``ninja`` run PyTorch's own build on them. ``build`` does all of it.
"""
