"""The input: components and registries, TOML files and overrides, plug-ins, the identity of a run."""
