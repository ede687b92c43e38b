"""The entries that make operators of an extension that exists native, and what its build says."""
