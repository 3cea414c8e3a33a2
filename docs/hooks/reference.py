"""Reference pages generated from the program while the site is built, so they are never out of date.

Input keys and commands are pages of their own (`hpctrip.cli.reference`), and so are documents that lie outside of
docs/. In other pages `<!-- generated: NAME -->` stands for one of the `PARTS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import hpctrip
from hpctrip.base.text import markdown_table
from hpctrip.cli.main import cli
from hpctrip.cli.reference import pages
from hpctrip.cluster import results
from hpctrip.record.schema import RUN, Format

DOCUMENTS = {
    "project/security.md": "SECURITY.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/design.md": "hpctrip/DESIGN.md",
}
"""{page: its file, in the repository's root or beside the code}"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of keys and commands, and the documents."""
    root = Path(config.config_file_path).parent
    texts = {page: (root / source).read_text(encoding="utf-8") for page, source in DOCUMENTS.items()}
    texts |= {f"reference/{name}": text for name, text in pages(cli).items()}
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace each placeholder by its generated part. Raises KeyError for an unknown name."""
    return re.sub(r"<!-- generated: (\w+) -->", lambda match: "\n".join(PARTS[match[1]]()), markdown)


def columns(form: Format = RUN) -> Iterator[str]:
    """Columns of each table of a results file."""
    for table, names in form.tables.items():
        text = form.docs[table]
        yield f"\n### /{table}\n\n{text[0].upper()}{text[1:]}.\n"
        rows = ((f"`{name}`", about["unit"], about["doc"]) for name, about in names.items())
        yield markdown_table(("column", "unit", "meaning"), rows)


def cluster_columns() -> Iterator[str]:
    """Columns of each table of a cluster's results file."""
    yield from columns(results.CLUSTER)


def attributes() -> Iterator[str]:
    """Attributes of a results file."""
    rows = ((f"`{name}`", attribute.doc) for name, attribute in RUN.attributes.items())
    yield markdown_table(("attribute", "meaning"), rows)


def library() -> Iterator[str]:
    """Public names of `import hpctrip`: functions, the classes that they return, errors."""
    offered = {name: getattr(hpctrip, name) for name in hpctrip.__all__}
    for name, member in offered.items():
        if inspect.isfunction(member):
            call = f"```python\nhpctrip.{name}{_signature(member)}\n```"
            yield f"\n## hpctrip.{name}\n\n{call}\n\n{inspect.getdoc(member)}"
    for cls in (hpctrip.Run, hpctrip.Cluster):
        yield f"\n## hpctrip.{cls.__name__}\n\n{inspect.getdoc(cls)}\n"
        yield markdown_table(("member", "meaning"), _members(cls))
    yield "\n## Errors\n"
    rows = (
        (f"`hpctrip.{name}`", inspect.getdoc(error).splitlines()[0], str(error.exit_code))
        for name, error in offered.items()
        if name.endswith(("Error", "InterruptedRun"))
    )
    yield markdown_table(("error", "when", "exit code of the command"), rows)


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    part.__name__: part for part in (attributes, columns, cluster_columns, library)
}


def _members(cls: type) -> Iterator[tuple[str, str]]:
    for name, member in inspect.getmembers(cls):
        if not name.startswith("_") and inspect.isfunction(member):
            yield f"`{name}{_signature(member, '')}`", inspect.getdoc(member)
        elif not name.startswith("_") and isinstance(member, property):
            yield f"`{name}`", inspect.getdoc(member)


def _signature(function: Callable[..., object], between: str = "\n    ") -> str:
    """Signature without `self`; long ones with each parameter after `between`."""
    # annotations are texts, in quotes
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(function)))
    text = text.replace("(self, ", "(").replace("(self)", "()")
    inside, _, result = text[1:].rpartition(")")
    if len(text) < 80 or not between:
        return text
    parts = re.split(r", (?![^\[]*\])", inside)
    return f"({between}" + f",{between}".join(parts) + f",\n){result}"
