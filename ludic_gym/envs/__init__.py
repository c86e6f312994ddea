"""The environments: base classes, and one file per family; `envs_registry` names them all."""
