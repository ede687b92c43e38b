"""Build the operators of an editable install again if their sources were edited since. Written by `pip install -e`."""

import json
import os
import subprocess
import sys

# Beside this file: the command that builds, and the state of the sources when it last ran.
_STATE = "edited.json"


def state_of(folders):
    """Return the size and time of each file in ``folders``, but for tests and what editors and tools write."""
    found = {}
    for folder in folders:
        for parent, names, files in os.walk(folder):
            names[:] = [name for name in names if not name.startswith(".") and name not in ("__pycache__", "tests")]
            for path in (os.path.join(parent, name) for name in files if not name.startswith(".")):
                status = os.stat(path)
                found[path] = [status.st_size, status.st_mtime_ns]
    return found


def build_again(folder, name):
    """Build what was edited.

    Args:
        folder: the folder of this file.
        name: the name of the package, for messages.

    Raises:
        ValueError: the errors of the build.
    """
    if os.environ.get("GRAFT_EDITABLE_REBUILD") == "0":
        return
    with open(os.path.join(folder, _STATE), encoding="utf-8") as file:
        state = json.load(file)
    if state_of(state["folders"]) == state["files"]:
        return
    sys.stderr.write(f"{name}: building what was edited ...\n")
    # The builder may import torch, which must not come back here.
    env = {**os.environ, "GRAFT_EDITABLE_REBUILD": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(state["command"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        _, _, errors = done.stdout.partition("error: ")
        raise ValueError(errors or done.stdout)
