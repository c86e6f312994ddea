"""Texts within HTML."""

ENTITIES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))


def escape(text):
    """The text with the entities of HTML."""
    for character, entity in ENTITIES:
        text = text.replace(character, entity)
    return text
