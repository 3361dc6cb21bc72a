"""Serve MathJax and the widgets' scripts from the book itself, so that a page needs no network.

MathJax comes from the installed package sphinx-mathjax-offline: only its one self-contained file is copied (2 MB of
its 24), because SVG output needs no fonts and the "full" file already holds every TeX extension.
The widgets' scripts exist only on npm: where `course_lib.book.vendor()` has fetched them they are used, else the
pages ask a CDN, and without a network the still twin of each widget carries the chapter.
"""

import shutil
from importlib.util import find_spec
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[1] / "_static" / "vendor"
MATHJAX = "tex-svg-full.js"


def _installed(package: str, *parts: str) -> Path | None:
    spec = find_spec(package)
    path = Path(spec.origin).parent.joinpath(*parts) if spec and spec.origin else None
    return path if path and path.exists() else None


def use_local(app, config):
    if _installed("sphinx-mathjax-offline", "static", "mathjax", MATHJAX):
        config.mathjax_path = f"mathjax/{MATHJAX}"
    if (VENDOR / "embed-amd.js").exists():
        # Leave the attributes empty: any data-jupyter-widgets-cdn-only, even "false", means "CDN only".
        config.nb_ipywidgets_js = {"vendor/require.js": {}, "require-local.js": {}, "vendor/embed-amd.js": {}}


def copy_local(app, failed):
    if failed or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    copies = [(_installed("sphinx-mathjax-offline", "static", "mathjax", MATHJAX), static / "mathjax" / MATHJAX)]
    if (VENDOR / "embed-amd.js").exists():
        copies.append((_installed("anywidget", "nbextension", "index.js"), static / "vendor" / "anywidget.js"))
    for source, target in copies:
        if source:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def setup(app):
    app.connect("config-inited", use_local, priority=100)
    app.connect("build-finished", copy_local)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
