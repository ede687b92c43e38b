"""Upstream's files with what is patched, generated and appended: the files of the wheel that differ from the base's."""
