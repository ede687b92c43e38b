"""The source build: the same patches and the same native folder, in a whole PyTorch checkout.

``fetch``, ``debian`` and ``copies`` get the sources. ``tree`` is a checkout as a git repository, ``stack`` creates
commits in it, and ``placing`` decides what they contain; ``apply`` combines these, and ``export`` writes the result as
patches. ``upstream`` runs PyTorch's own build, ``build`` all of this. ``syntax`` only parses the folder's sources.
"""
