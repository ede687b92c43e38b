"""Fill the Jinja templates of a new operator and of a new project."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".in"


def templates_in(folder: str) -> dict[str, str]:
    """Return the templates in a folder of ``templates``, by the path of the file that each becomes."""
    files = ((path, path.relative_to(_TEMPLATES / folder)) for path in (_TEMPLATES / folder).rglob(f"*{_SUFFIX}"))
    return {name.as_posix().removesuffix(_SUFFIX): path.relative_to(_TEMPLATES).as_posix() for path, name in files}


def rendered(template: str, values: Mapping[str, object]) -> str:
    """Return the text of a template. It is empty if the operator has no such file."""
    return _ENVIRONMENT.get_template(template).render(values)


def _scalar(text: str) -> str:
    """Format a text as a scalar of YAML, with quotes if it needs them."""
    return yaml.safe_dump([text], width=10**6).removeprefix("- ").rstrip()


def environment_in(folder: Path) -> Environment:
    """Return Jinja's environment for the templates in a folder."""
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,  # a name without a value is an error
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_ENVIRONMENT = environment_in(_TEMPLATES)
_ENVIRONMENT.filters["scalar"] = _scalar
