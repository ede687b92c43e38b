"""Compose the files that differ from the base's: upstream's text with patched, generated and appended parts."""
