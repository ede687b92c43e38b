"""Each test here is a surface of an operator; ``make surfaces`` runs them and prints a table."""

from tests.kit.surfaces import (  # noqa: F401
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_generate_tests,
    pytest_pyfunc_call,
)
