"""The source build: the same patches and the same native folder, in a whole PyTorch checkout.

``fetch`` and ``debian`` get the sources. ``tree`` is a checkout as a git repository, and creates commits in it;
``apply`` decides what they contain, and ``export`` writes them as patches. ``upstream`` runs PyTorch's own build,
``build`` all of this. ``syntax`` only parses the folder's sources. ``branch`` is the way back: a branch as a native
folder, of what ``changed`` and ``behind`` find in C++, YAML and Python.
"""
