"""The container without a container engine: the Dockerfile read, and its steps run in a root file system."""
