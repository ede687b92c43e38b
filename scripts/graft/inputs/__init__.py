"""The inputs of a build: the pin and its patches, native folders, the toolchain."""
