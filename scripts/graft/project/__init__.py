"""Projects: a folder with operators and a pyproject.toml, which pip, build and uv turn into wheels."""
