"""Requests to the builder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graft.given import request_of
from graft.options import Request


def asked(**values: Any) -> Request:
    """Return a request with these values, and the defaults of all other options."""
    return replace(request_of({}), **values)
