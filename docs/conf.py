"""The site: `make docs` builds it from these pages, the docstrings and `examples/`, without a network."""

import inspect
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # examples are small: threads that wait for one another cost more

import sottovoce

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
ROOMS = (
    "estimators", "problem", "network", "privacy", "secure", "inference", "algorithm", "engine", "run", "planner",
    "experiments", "evaluation", "auditing", "data", "report", "export", "node", "consortium", "pages",
)  # fmt: skip
"""The folders whose public names have a page of their own, `api/ROOM.md`; what people use is on `api.md`."""

project = "sottovoce"
author = "The sottovoce founders"
copyright = "The sottovoce founders, Apache-2.0"
release = version = sottovoce.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "README.md"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]  # sphinx_gallery's functions cannot be pickled; nothing is lost by it
nitpicky = False  # types of NumPy and scikit-learn are not on this site, and there is no network to find them

autosummary_generate = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "sottovoce"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars: dict[str, list[str]] = {"start": [], "coming-from": []}  # nothing beside them, or two columns
html_show_sourcelink = False
html_copy_source = False
html_show_search_summary = False  # a browser may not read other pages of a site that was opened from disk
html_theme_options: dict[str, Any] = {
    "logo": {"text": "sottovoce"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "coming-from": []},
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"examples/[a-z_]+\.py$",
    "ignore_pattern": r"consortium/|patients/",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "min_reported_time": 1e9,
    "image_scrapers": ("matplotlib",),
    "within_subsection_order": "ExampleTitleSortKey",
}


def undocumented(room: str) -> list[str]:
    """The public names of a folder (the package itself: '') that say nothing about themselves."""
    module = import_module(f"sottovoce.{room}" if room else "sottovoce")
    said = ((name, getattr(module, name)) for name in module.__all__ if not name.startswith("__"))
    return [name for name, thing in said if callable(thing) and not inspect.getdoc(thing)]


def missing_from_the_api() -> list[str]:
    """Names that `sottovoce` calls public and `api.md` does not list."""
    listed = set((HERE / "api.md").read_text().split())
    return [name for name in sottovoce.__all__ if name not in listed and not name.startswith("__")]


def check_gaps(app: Any) -> None:
    """No page is built while a public name is undocumented or on no page."""
    from sphinx.errors import ExtensionError

    if lost := missing_from_the_api():
        raise ExtensionError(f"api.md does not list {', '.join(lost)}")
    for room in ("", *ROOMS):
        if silent := undocumented(room):
            raise ExtensionError(f"public names of sottovoce.{room} without a docstring: {', '.join(silent)}")


def write_results(app: Any) -> None:
    """Copy the pages of benchmarks/results beside these, with links that fit the site."""
    pages = HERE / "results"
    pages.mkdir(exist_ok=True)
    for page in RESULTS.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](../../docs/", "](../")
        if page.name == "README.md":
            text += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
        (pages / page.name.replace("README", "index")).write_text(text, encoding="utf-8")


def write_rooms(app: Any) -> None:
    """Write one page a folder, made from the folder's own first lines and its public names."""
    pages = HERE / "api"
    pages.mkdir(exist_ok=True)
    for room in ROOMS:
        text = (
            f"# sottovoce.{room}\n\n```{{eval-rst}}\n.. automodule:: sottovoce.{room}\n   :members:\n"
            "   :imported-members:\n   :no-index:\n```\n"
        )
        page = pages / f"{room}.md"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def write_references(app: Any) -> None:
    """Write the pages of the command and of the files that people write, from the code."""
    sys.path.insert(0, str(HERE))
    import references

    references.write(HERE / "generated")


def write_planner(app: Any, failed: Any) -> None:
    """Write the planner's page with its answers into the site; it takes half a minute."""
    from sottovoce.pages.planner import static

    if failed is None and app.builder.format == "html" and str(app.config.plot_gallery) not in ("0", "False"):
        Path(app.outdir, "_static", "planner.html").write_text(static(), encoding="utf-8")


def stay_on_the_site(app: Any, page: str, source: list[str]) -> None:
    """Links of pages to files beside the folder become links to their pages here."""
    for name in ("SECURITY", "CHANGELOG", "CONTRIBUTING"):
        source[0] = source[0].replace(f"(../{name}.md", f"({name.lower()}.md")
    source[0] = source[0].replace("(../benchmarks/results/README.md", "(results/index.md")
    source[0] = source[0].replace("(../benchmarks/results/", "(results/")


def drop_foreign_references(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings that are inherited from scikit-learn name labels of its own site; their words remain."""
    lines[:] = [re.sub(r":(?:ref|term):`([^<`]+?)(?:\s*<[^`]*>)?`", r"\1", line) for line in lines]


def setup(app: Any) -> None:
    """Check, then write what is made, before the pages are read."""
    app.connect("build-finished", write_planner)
    app.connect("source-read", stay_on_the_site)
    app.connect("autodoc-process-docstring", drop_foreign_references)
    app.connect("builder-inited", check_gaps, priority=1)
    app.connect("builder-inited", write_rooms, priority=2)
    app.connect("builder-inited", write_results, priority=2)
    app.connect("builder-inited", write_references, priority=2)
