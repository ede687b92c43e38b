"""What a build is made of: the pin and its patches, native folders, the toolchain."""
