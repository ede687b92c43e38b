"""Build the operators of an editable install again if their sources were edited since. Written by `pip install -e`."""

import json
import os
import subprocess
import sys

# Beside this file: the command that builds, and the state of the sources when it last ran.
STATE = "edited.json"

_READ = (".yaml", ".cpp", ".h", ".hpp", ".inl", ".inc", ".cu", ".cuh", ".py", ".pyi", ".rst")


def state_of(folders: "list[str]", read: "list[str]", others: "list[str]") -> "dict[str, list[int]]":
    """Return the size and time of each file that builds read in ``folders``, where they read the folders ``read``, and
    of the ``others``.
    """
    paths = list(others)
    for folder in folders:
        for parent, names, files in os.walk(folder, followlinks=True):
            names[:] = [name for name in names if name != "__pycache__" and (parent != folder or name in read)]
            paths += [os.path.join(parent, name) for name in files if name.endswith(_READ)]
    found = {}
    for path in paths:
        try:
            status = os.stat(path)
            found[path] = [status.st_size, status.st_mtime_ns]
        except OSError:
            found[path] = []
    return found


def build_again(folder: str, name: str) -> None:
    """Build what was edited.

    Args:
        folder: the folder of this file.
        name: the name of the package, for messages.

    Raises:
        ValueError: the errors of the build.
    """
    if os.environ.get("GRAFT_EDITABLE_REBUILD") == "0":
        return
    with open(os.path.join(folder, STATE), encoding="utf-8") as file:
        state = json.load(file)
    if state_of(state["folders"], state["read"], state["others"]) == state["files"]:
        return
    sys.stderr.write(f"{name}: building what was edited ...\n")
    # The builder may import torch, which must not come back here.
    env = {**os.environ, "GRAFT_EDITABLE_REBUILD": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    env["GRAFT_HOME"] = state["home"]
    done = subprocess.run(state["command"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8")
    if done.returncode != 0:
        _, _, errors = done.stdout.partition("error: ")
        raise ValueError(errors or done.stdout)
