"""What the working tree of a checkout of PyTorch changes, as a native folder.

Git and the files of the checkout are only read. What is changed against the commit that the installed torch was built
from, or the nearest one, is written as a native folder into the cache: each statement at the line that it has in the
checkout, so that messages name the user's files. All else builds that folder as any other.
"""
