"""The source build: the same patches and the same native folder, in a whole PyTorch checkout.

``tree`` is the checkout as a git repository, ``stack`` creates commits in it, ``placing`` decides where native files
go, and ``added`` generates the Python file that lists the operators. ``apply`` combines them, ``moving`` checks the
result out, and ``export`` writes it as patches.

``fetch`` and ``debian`` download the pinned sources into ``cache``, and ``copies`` copies a user's checkout.
``settings``, ``configure`` and ``ninja`` run PyTorch's own build. ``build`` does all of it.
"""
