"""Documents that stand in the repository's root or beside the code, as pages of the site."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {
    "project/security.md": "SECURITY.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/design.md": "hpctrip/DESIGN.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them."""
    root = Path(config.config_file_path).parent
    for page, source in PAGES.items():
        files.append(File.generated(config, page, content=(root / source).read_text(encoding="utf-8")))
    return files
