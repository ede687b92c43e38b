"""Compose the files of the wheel that differ from the base's: upstream's text, patched, generated and appended parts."""
