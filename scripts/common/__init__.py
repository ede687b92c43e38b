"""What every stage uses: errors, commands, progress, files, locks and the folders of a build."""
