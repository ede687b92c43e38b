# The cache key of compiled code is a hash of torch's own files. What a thin wheel adds is elsewhere.


def _with_thin_wheels(upstreams):
    """Make ``torch_key`` include what was added to this torch."""

    @functools.lru_cache(None)
    @functools.wraps(upstreams)
    def torch_key():
        hashes = [note["hash"] for note in torch._thin_wheels.values()]
        return hashlib.sha256(b"".join([upstreams(), *map(str.encode, hashes)])).digest()

    return torch_key


torch_key = _with_thin_wheels(torch_key)
