"""MkDocs hooks: the generated pages of the reference, and their navigation."""

from __future__ import annotations

from itertools import chain

import data_sets_page
import environment_pages
import published_page
import reference_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the Reference group of the navigation."""
    (group,) = (entry for entry in config.nav or [] if "Reference" in entry)
    group["Reference"] = [
        {"Environments": _section("environments", environment_pages.titles())},
        *(
            {package: _section(package, reference_pages.titles(package))}
            for package in reference_pages.PACKAGES
        ),
    ]
    environments = group["Reference"][0]["Environments"]
    environments.append({"Published benchmarks": published_page.PATH})
    environments.append({"Data sets": data_sets_page.PATH})
    environments.append({"Other packages": environment_pages.FOLDER + "other-packages.md"})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    tables = [(each.PATH, each.page()) for each in (published_page, data_sets_page)]
    for path, text in chain(environment_pages.pages(), tables, reference_pages.pages()):
        files.append(File.generated(config, path, content=text))
    return files


def _section(name: str, titles: list[tuple[str, str]]) -> list[str | dict[str, str]]:
    return [f"reference/{name}/index.md", *({title: path} for title, path in titles)]
