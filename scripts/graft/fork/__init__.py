"""The source build: the same patches and the same native folder, in a whole PyTorch checkout.

``fetch`` and ``debian`` get the sources, into the ``cache`` of their pin. ``tree`` is a checkout as a git repository;
``stack`` creates commits in it. ``apply`` decides what they contain, ``checkout`` checks them out, ``export`` writes
them as patches. ``pytorch_build`` runs PyTorch's own build, ``source_build`` all of this. ``syntax`` only parses the
folder's sources.
``graft.checkout`` is the way back: it writes what a working tree or a branch changes as a native folder.
"""
