# Extensions that are delivered beside torch. A copy of one elsewhere, such as what its own build left in its source
# tree, would register the same operators again, or other ones.


def _with_extensions(extensions):
    """Make ``import`` and ``torch.ops.load_library`` take these extensions from beside torch, and refuse copies."""
    import functools
    import importlib.machinery
    import os
    import sys

    find = importlib.machinery.PathFinder.find_spec

    def places():
        """Yield the folders where packages are delivered: beside this torch, and beside packages with operators."""
        torch = os.path.dirname(os.path.abspath(__file__))
        if os.path.isfile(os.path.join(torch, "_graft.json")):
            yield os.path.dirname(torch)
        for note in getattr(sys.modules.get("torch"), "_thin_wheels", {}).values():
            yield os.path.dirname(os.path.dirname(note["folder"]))

    def own(name):
        """Return where Python finds the extension beside torch; None if it is gone."""
        parts = name.split(".")
        found = (find(name, [os.path.join(place, *parts[:-1])]) for place in places())
        return next((spec for spec in found if spec and spec.origin), None)

    def require_own(name, path):
        ours = own(name)
        if ours and os.path.realpath(path) != os.path.realpath(ours.origin):
            raise ImportError(
                f"{name}: {path} is another copy of what this torch was built with, {ours.origin}; delete that copy",
                name=name,
                path=path,
            )

    def is_importable(name, folder):
        """Return whether what lies below a folder by a name may have it in Python: others name theirs alike."""
        if "." in name:
            return not os.path.isfile(os.path.join(folder, "__init__.py"))
        return os.path.realpath(folder) in map(
            os.path.realpath, filter(os.path.isdir, (each or "." for each in sys.path))
        )

    class Finder:
        """Finds these extensions also for a package that is imported from its source tree."""

        def find_spec(self, name, path=None, target=None):
            if name not in extensions:
                return None
            spec = find(name, path)
            if spec and spec.origin:
                require_own(name, spec.origin)
            return spec or own(name)

    def with_copies_refused(upstreams):
        @functools.wraps(upstreams)
        def load_library(self, path):
            folder, name = os.path.split(os.path.abspath(path))
            stem = os.path.join(folder, name.partition(".")[0])
            for each in extensions:
                below = os.sep + each.replace(".", os.sep)
                if stem.endswith(below) and is_importable(each, stem[: -len(below)] or os.sep):
                    require_own(each, path)
            return upstreams(self, path)

        return load_library

    sys.meta_path.insert(0, Finder())
    _Ops.load_library = with_copies_refused(_Ops.load_library)


_with_extensions(EXTENSIONS)
