"""Modules that every stage uses: errors, commands, progress, files, locks and the layout of folders."""
