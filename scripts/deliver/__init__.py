"""What a build hands out: the wheel."""
