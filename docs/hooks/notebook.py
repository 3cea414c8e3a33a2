"""The notebook as a page: its cells and the outputs stored in it. Nothing is run while the site is built."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page beside every notebook, and its pictures."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        where = PurePosixPath(notebook.src_uri)
        pictures: dict[str, bytes] = {}
        text = "\n".join(_cells(json.loads(notebook.content_string)["cells"], where.stem, pictures))
        text += f"\n\n[Download the notebook]({where.name})\n"
        files.append(File.generated(config, str(where.with_suffix(".md")), content=text))
        for name, data in pictures.items():
            files.append(File.generated(config, str(where.with_name(name)), content=data))
    return files


def _cells(cells: list[dict], stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield f"{source}\n"
            continue
        yield f"```python\n{source}\n```\n"
        for output in cell["outputs"]:
            yield from _output(output, stem, pictures)


def _output(output: dict, stem: str, pictures: dict[str, bytes]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        name = f"{stem}_{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode(data["image/png"])
        yield f"![output]({name}){{ width=100% }}\n"
    elif "text/html" in data:
        yield "".join(data["text/html"]) + "\n"
    else:
        yield f"```text\n{''.join(output.get('text', data.get('text/plain', '')))}\n```\n"
