"""Page of the published benchmarks, made from `envs_registry/published.toml`."""

from __future__ import annotations

from envs_registry.published import PUBLISHED, PublishedEntry

PATH = "reference/environments/published.md"
HEAD = """\
# Published benchmarks

`ludic bench NAME` plays a benchmark of this page, by the rule of its publisher. See the guide
[Published benchmarks](../../guides/published-benchmarks.md).

| name | id | figures | published score of one model |
|---|---|---|---|
"""


def page() -> str:
    """A table of all, then a section for each."""
    rows = "".join(map(_row, PUBLISHED.values()))
    return "\n".join([HEAD + rows, *map(_section, PUBLISHED.values())])


def _row(entry: PublishedEntry) -> str:
    figures = ", ".join(entry.metrics)
    name = f"[`{entry.name}`](#{entry.name})"
    return f"| {name} | `{entry.id}` | {figures} | {_known(entry)} |\n"


def _known(entry: PublishedEntry) -> str:
    known = entry.known
    return "none recorded" if known is None else f"{known.model}: {known.score}, {known.source}"


def _limits(entry: PublishedEntry) -> str:
    limits = entry.limits
    if limits is None:
        return ""
    samples = f", {limits.samples} samples" if limits.samples > 1 else ""
    return (
        f"temperature {limits.temperature:g}, top_p {limits.top_p:g}, {limits.max_tokens:,} tokens"
        f"{samples} ({limits.source})"
    )


def _section(entry: PublishedEntry) -> str:
    config = f", config `{entry.config}`" if entry.config else ""
    data = f"split `{entry.split}` of `{entry.hub}`{config}" if entry.hub else "local files"
    facts = {
        "Paper": entry.paper,
        "Data": f"{data}; licence {entry.licence}",
        "Columns": entry.columns,
        "Rule": entry.rule,
        "Figures": ", ".join(entry.metrics),
        "Differences": entry.differs,
        "Sampling": _limits(entry),
        "Published score of one model, in percent": _known(entry),
    }
    lines = "".join(f"- {name}: {text}\n" for name, text in facts.items() if text)
    prompt = f"\n````text\n{entry.prompt}\n````\n" if entry.prompt else ""
    command = f"```bash\nludic bench {entry.name} --data FILE --policy ADDRESS\n```\n"
    # The name as the title, so that links of the table lead here.
    return f"## {entry.name}\n\n{entry.title}\n\n{command}\n{lines}{prompt}"
