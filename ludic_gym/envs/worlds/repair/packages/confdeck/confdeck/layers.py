"""Several configurations, one over the other."""


def merge(*layers):
    """The sections of all layers; a later layer wins key by key. The layers stay as they are."""
    result = {}
    for layer in layers:
        for section, keys in layer.items():
            result.setdefault(section, {}).update(keys)
    return result


def flatten(sections):
    """{"section.key": value}, in the order of the sections; keys of "" have no prefix."""
    flat = {}
    for section, keys in sections.items():
        for key, value in keys.items():
            flat[f"{section}.{key}" if section else key] = value
    return flat
