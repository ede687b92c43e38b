"""The bindings of loads, which see PyTorch's Python layer through declarations alone: the tests of the grammar folder,
which has every kind of argument and result, on a load of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sessions import stock_variables

REPOSITORY = Path(__file__).parents[2]
GRAMMAR = REPOSITORY / "tests/wheel/grammar"
PROGRAM = "import sys, graft, pytest; graft.load(sys.argv[1]); sys.exit(pytest.main(sys.argv[2:]))"

# Tests of what a load has not, with what it has instead.
OTHERWISE = {
    "test_a_view_meta_is_known_to_python": "no class, which could be bound only once",
    "test_code_compiled_for_a_capability_runs": "the code for this processor",
    "test_the_code_compiled_for_this_processor_runs": "the same",
    "test_every_new_name_has_a_stub": "no files",
    "test_cpp": "no library to link with",
    "test_vmap_uses_the_rules_of_the_folder": "rules that loads.cpp registers",
}


@pytest.mark.slow
def test_grammar_folder_passes_its_tests_as_a_load(tmp_path: Path) -> None:
    env = stock_variables(tmp_path, GRAFT_NATIVE=str(GRAMMAR))
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], *(str(REPOSITORY / name) for name in ("", "tests/shared"))])
    chosen = ["-k", f"not ({' or '.join(OTHERWISE)})", "-q", "-p", "no:cacheprovider"]
    chosen += ["-c", str(REPOSITORY / "pyproject.toml")]
    command = [sys.executable, "-c", PROGRAM, str(GRAMMAR), *chosen, str(GRAMMAR / "tests")]
    done = subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
