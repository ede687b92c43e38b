"""mypy --strict and pyright on a program whose wrong lines are marked ``# error``."""

import json
import re
import subprocess
import sys
from pathlib import Path


def marked_lines(text: str) -> set[int]:
    """Return the numbers of the marked lines."""
    return {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# error")}


def mypy(text: str, folder: Path) -> dict[int, str]:
    """Return the errors of mypy --strict in a program, by line; ``folder`` is for temporary files."""
    (folder / "program.py").write_text(text)
    command = ["mypy", "--strict", "--config-file=", "--cache-dir=/dev/null", "--follow-imports=silent", "program.py"]
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line): what for line, what in re.findall(r"^program\.py:(\d+): error: (.*)", done.stdout, re.M)}


def pyright(text: str, folder: Path) -> dict[int, str]:
    """Return the errors of pyright in its default mode; basedpyright is pyright with the JavaScript engine that it
    needs.
    """
    (folder / "program.py").write_text(text)
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard"}))
    command = ["basedpyright", "--outputjson", "--pythonpath", sys.executable, "program.py"]
    done = subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    return {each["range"]["start"]["line"] + 1: each["message"] for each in found}


CHECKERS = [mypy, pyright]


def complaints(text: str, found: dict[int, str]) -> list[str]:
    """Return the lines on which a checker and the marks disagree."""
    lines = text.splitlines()
    wrong = marked_lines(text)
    missed = [f"{number}: accepted: {lines[number - 1]}" for number in sorted(wrong - found.keys())]
    return missed + [f"{n}: rejected: {lines[n - 1]}: {found[n]}" for n in sorted(found.keys() - wrong)]
