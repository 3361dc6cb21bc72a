"""What the tests of widgets share: a page with one widget and no Python behind it, and a JupyterLab."""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from conftest import REPO


@contextmanager
def page_of(browser, **options):
    with browser.new_context(**options) as context:
        page = context.new_page()
        page.set_default_timeout(30_000)
        yield page


def show_alone(page, widget, dark: bool = False) -> None:
    """Run the widget's own script in an empty page, on the state that a built book holds: no Python behind it."""
    colours = "background:#121212;color:#eee" if dark else "background:white;color:black"
    style = f"<style>{widget._css}</style>"
    page.set_content(f"<html lang=en><title>t</title>{style}<body style='{colours}'><main></main>")
    state = {k: v for k, v in widget.get_state().items() if not k.startswith("_") and k not in ("layout", "tabbable")}
    raw = [k for k, v in state.items() if isinstance(v, bytes)]
    state |= {k: list(state[k]) for k in raw}
    page.evaluate(
        """async ([script, state, raw]) => {
          state = JSON.parse(state);
          for (const k of raw) state[k] = new DataView(Uint8Array.from(state[k]).buffer);
          const heard = [];
          window.model = {get: (k) => state[k], save_changes: () => {}, off: () => {},
                          on: (event, f) => heard.push([event, f]),
                          set: (k, v) => {
                            state[k] = v;
                            for (const [event, f] of heard) if (event === `change:${k}`) f();
                          }};
          const url = URL.createObjectURL(new Blob([script], {type: "text/javascript"}));
          window.script = await import(url);
          window.script.default.render({model: window.model, el: document.querySelector("main")});
        }""",
        [widget._esm, json.dumps(state), raw],
    )


def write_notebook(path: Path, *cells: str) -> None:
    """Write a notebook of these code cells."""
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, path)


@contextmanager
def jupyter_lab(folder: Path):
    """Run JupyterLab on `folder`, on the loopback address only, with settings of its own; yield address and token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = folder / ".settings"
    (settings / "config" / "labconfig").mkdir(parents=True)
    quiet = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (settings / "config" / "labconfig" / "page_config.json").write_text(json.dumps(quiet))
    token = secrets.token_hex(16)
    own = {f"JUPYTER_{kind.upper()}_DIR": str(settings / kind) for kind in ("config", "runtime", "data")}
    env = os.environ | own | {"PYTHONPATH": str(REPO), "JUPYTERLAB_WORKSPACES_DIR": str(settings / "workspaces")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    with open(settings / "lab.log", "w") as log:
        lab = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
    try:
        address = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                if lab.poll() is not None or time.monotonic() > deadline:
                    pytest.fail("JupyterLab did not start:\n" + (settings / "lab.log").read_text()[-2000:])
                time.sleep(0.3)
        yield address, token
    finally:
        lab.terminate()
        try:
            lab.wait(15)
        except subprocess.TimeoutExpired:
            lab.kill()


def run_all(page, until) -> None:
    """Run all cells; JupyterLab forgets a run it is asked for while it still connects to the kernel, so ask again."""
    deadline = time.monotonic() + 90
    while not until.is_visible() and time.monotonic() < deadline:
        if "[ ]" in page.locator(".jp-InputPrompt").first.inner_text():
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()
        page.wait_for_timeout(1500)
