"""Values of a configuration."""

import re

from confdeck.reader import ConfigError

WORDS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
REFERENCE = re.compile(r"\$\{([^}]*)\}")


def convert(text):
    """The text as a bool, int, float, list (of a text with commas), or as it is.

    Quotes keep a text as it is. An empty text is "".
    """
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if "," in text:
        return [convert(part.strip()) for part in text.split(",") if part.strip()]
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def expand(sections):
    """The sections with ${key} and ${section.key} replaced; the first looks in its own section."""

    def value_of(section, key, seen):
        if (section, key) in seen:
            raise ConfigError(f"{key} refers to itself")
        if key not in sections.get(section, {}):
            raise ConfigError(f"no value {section}.{key}")

        def found(match):
            inner, dot, name = match[1].rpartition(".")
            return value_of(inner if dot else section, name, seen | {(section, key)})

        return REFERENCE.sub(found, sections[section][key])

    return {
        section: {key: value_of(section, key, frozenset()) for key in keys}
        for section, keys in sections.items()
    }
