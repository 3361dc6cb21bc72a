"""The book is built from the executed chapters and opened in a browser, wide and narrow, light and dark, offline."""

import contextlib
import re
import shutil
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import nbformat
import pytest
import yaml
from conftest import REPO
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib import book, experiments
from course_lib.book import BookError
from course_lib.data import shipped

SIZES = {"desk": (1280, 900), "phone": (390, 844)}
LOOKS = [(size, scheme) for size in SIZES for scheme in ("light", "dark")]

# Messages that are known and harm nobody.
ALLOWED_MESSAGES = (
    r"THEBE_JS_URL' has already been declared",  # Jupyter Book 1 declares it twice on every page
    r"Failed to load resource: net::ERR_(FAILED|BLOCKED_BY_CLIENT)",  # what the test itself blocked; recorded apart
    r"Failed to load resource: .*404",  # the widgets' own style sheet asks for icon fonts at a wrong address
)
# Where the pages may look outward when the widgets' scripts are not vendored: the still twin then carries the page.
WIDGET_CDN = re.compile(
    r"https://(cdnjs\.cloudflare\.com/ajax/libs/require\.js|cdn\.jsdelivr\.net/npm/(@jupyter|anywid))"
)
# Rules of axe-core that parts we do not write break, each with the marks of the elements it is forgiven for.
ALLOWED_AXE = {
    "aria-input-field-name": ("noUi",),  # the handle of an ipywidgets slider has no name of its own
    "aria-required-children": ("citation-list",),  # docutils gives references roles that ARIA has since dropped
    "aria-roles": ("doc-biblioentry",),
    # sphinx-exercise and sphinx-proof give one id to all they make; nothing links to it
    "duplicate-id": ('id="exercise-content"', 'id="proof-content"', 'id="proof"'),
}


# ---- building --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def site(executed):
    """The folder of the whole built book."""
    return book.build(executed.root).parent


def tiny(folder, *cells, intro="# Start\n\nText.", url=""):
    """A scratch copy with the real configuration, one page and one chapter."""
    shutil.copytree(REPO / "book", folder / "book", ignore=shutil.ignore_patterns("_build", "vendor", "*.md"))
    (folder / "book/intro.md").write_text(intro, encoding="utf-8")
    toc = {"format": "jb-book", "root": "book/intro", "parts": [{"chapters": [{"file": "notebooks/01_tiny"}]}]}
    (folder / "book/_toc.yml").write_text(yaml.safe_dump(toc), encoding="utf-8")
    config = yaml.safe_load((folder / "book/_config.yml").read_text(encoding="utf-8"))
    config["repository"]["url"] = url
    (folder / "book/_config.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (folder / "notebooks").mkdir()
    cells = [new_markdown_cell("# Tiny"), *(cells or [new_code_cell("print('fine')")])]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / "notebooks/01_tiny.ipynb")
    return folder


def ran(root, size="ci"):
    book.execute(book.chapters(root)[0], size)
    return root


def test_every_page_of_the_contents_is_there(site):
    missing = [page for page in book.pages() if not (site / f"{page}.html").exists()]
    assert not missing
    assert (site / "index.html").exists()


def test_every_chapter_is_in_the_contents_and_on_the_front_page():
    stems = [f"notebooks/{path.stem}" for path in book.chapters()]
    assert [page for page in book.pages() if page.startswith("notebooks/")] == stems
    linked = re.findall(r"\{doc\}`/(notebooks/[^`]+)`", (REPO / "book/intro.md").read_text(encoding="utf-8"))
    assert sorted(set(linked)) == stems


def test_a_raising_cell_is_named_and_the_notebook_left_as_it_was(tmp_path):
    root = tiny(tmp_path, new_code_cell("1"), new_code_cell("raise ValueError('planted')"))
    path = book.chapters(root)[0]
    before = path.read_bytes()
    for _ in range(2):  # no cache hides the second failure
        with pytest.raises(BookError, match=r"01_tiny, cell 2 \(raise ValueError\('planted'\)\): ValueError: planted"):
            book.execute(path, "ci")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_only_a_tagged_cell_may_raise(tmp_path):
    tagged = new_code_cell("raise ValueError('a lesson')", metadata={"tags": ["raises-exception"]})
    path = book.chapters(ran(tiny(tmp_path, tagged, new_code_cell("print('on')"))))[0]
    assert not book.unfinished(path)
    notebook = nbformat.read(path, 4)
    notebook.cells[1].metadata.tags = []
    nbformat.write(notebook, path)
    assert book.unfinished(path) == ["01_tiny, cell 1 (raise ValueError('a lesson')): ValueError: a lesson"]


def test_a_dead_kernel_and_a_slow_cell_are_named(tmp_path):
    root = tiny(tmp_path, new_code_cell("import os\nos._exit(1)"))
    with pytest.raises(BookError, match=r"01_tiny, cell 1 \(import os\)"):
        book.execute(book.chapters(root)[0], "ci")
    nbformat.write(new_notebook(cells=[new_code_cell("import time\ntime.sleep(60)")]), book.chapters(root)[0])
    with pytest.raises(BookError, match=r"01_tiny, cell 0 \(import time\): CellTimeoutError"):
        book.execute(book.chapters(root)[0], "ci", timeout=2)


def test_the_size_reaches_the_kernel_and_its_folder_is_the_notebooks(tmp_path):
    path = book.chapters(
        ran(tiny(tmp_path, new_code_cell("import os\nprint(os.environ['COURSE_SIZE'], os.getcwd())")), "paper")
    )[0]
    assert nbformat.read(path, 4).cells[1].outputs[0].text.split() == ["paper", str(path.parent)]


def several(folder, *sources):
    """A scratch copy with one chapter for each source."""
    (folder / "notebooks").mkdir()
    for number, source in enumerate(sources, 1):
        nbformat.write(new_notebook(cells=[new_code_cell(source)]), folder / f"notebooks/0{number}_tiny.ipynb")
    return book.chapters(folder)


def test_two_chapters_run_at_once_with_a_thread_each(tmp_path, monkeypatch):
    monkeypatch.setattr(book.os, "cpu_count", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    meet = """
import os, pathlib, time
pathlib.Path("{own}").touch()
while not pathlib.Path("{other}").exists():
    time.sleep(0.1)
print(os.environ["OMP_NUM_THREADS"])"""
    paths = several(tmp_path, meet.format(own="a", other="b"), meet.format(own="b", other="a"))
    assert sorted(path for path, _ in book.execute_all(paths, "ci", timeout=30)) == paths
    assert [nbformat.read(path, 4).cells[0].outputs[0].text for path in paths] == ["1\n", "1\n"]


def test_on_one_core_the_chapters_run_in_turn(tmp_path, monkeypatch):
    monkeypatch.setattr(book.os, "cpu_count", lambda: 1)
    ran = []
    monkeypatch.setattr(book, "execute", lambda path, *_, **__: (ran.append(path), time.sleep(0.1), ran.append(path)))
    paths = several(tmp_path, "1", "2")
    list(book.execute_all(paths))
    assert ran == [paths[0], paths[0], paths[1], paths[1]]


def test_the_first_chapter_that_fails_is_named_and_stops_the_others_in_their_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(book.os, "cpu_count", lambda: 2)
    paths = several(tmp_path, "raise ValueError('planted')", "import time\ntime.sleep(100)", "open('ran', 'w')")
    before, start = [path.read_bytes() for path in paths], time.perf_counter()
    with pytest.raises(BookError, match=r"01_tiny, cell 0 \(raise ValueError\('planted'\)\): ValueError: planted"):
        list(book.execute_all(paths, "ci"))
    assert time.perf_counter() - start < 60
    assert [path.read_bytes() for path in paths] == before
    assert sorted(paths[0].parent.iterdir()) == paths


def test_a_chapter_costs_what_it_computes_not_what_it_waits(tmp_path):
    work = "import time\ntime.sleep(3)\nwhile time.process_time() < began + 1:\n    pass"
    path = book.chapters(
        tiny(tmp_path, new_code_cell("import time\nbegan = time.process_time()"), new_code_cell(work))
    )[0]
    assert 1 <= book.execute(path, "ci") < 2.5


def test_a_chapter_without_outputs_stops_the_build(tmp_path):
    with pytest.raises(BookError, match="01_tiny: has no outputs"):
        book.build(tiny(tmp_path))


def test_a_broken_book_is_red_the_second_time_too(tmp_path):
    root = ran(tiny(tmp_path, intro="# Start\n\nSee {eq}`nowhere`."))
    for _ in range(2):
        with pytest.raises(BookError, match="nowhere"):
            book.build(root)


def test_a_missing_page_is_named(tmp_path):
    root = ran(tiny(tmp_path))
    toc = (root / "book/_toc.yml").read_text(encoding="utf-8").replace("01_tiny", "02_absent")
    (root / "book/_toc.yml").write_text(toc, encoding="utf-8")
    with pytest.raises(BookError, match="notebooks/02_absent: no such page was made"):
        book.build(root)


@pytest.mark.parametrize("url", ["", "https://github.com/someone/somewhere"])
def test_one_setting_turns_the_launch_buttons_on(tmp_path, url):
    html = (book.build(ran(tiny(tmp_path, url=url))).parent / "notebooks/01_tiny.html").read_text(encoding="utf-8")
    path = "someone/somewhere/blob/main/notebooks/01_tiny.ipynb"
    assert (f"colab.research.google.com/github/{path}" in html) == bool(url)
    assert ("mybinder.org" in html) == bool(url)


def test_the_committed_book_names_no_repository_yet():
    assert yaml.safe_load((REPO / book.CONFIG).read_text(encoding="utf-8"))["repository"]["url"] == ""


def test_one_chapter_alone_becomes_a_page(tmp_path):
    root = ran(tiny(tmp_path))
    (root / "book/references.md").write_text("# References\n\n```{bibliography}\n:all:\n```\n", encoding="utf-8")
    made = book.page(book.chapters(root)[0])
    assert "fine" in made.read_text(encoding="utf-8")


def test_no_chapters_means_a_clear_error(tmp_path):
    with pytest.raises(BookError, match="clone the repository"):
        book.scratch(tmp_path / "out", tmp_path)


def test_without_npm_the_scripts_are_left_to_the_cdn(tmp_path, monkeypatch):
    monkeypatch.setattr(book.shutil, "which", lambda name: None)
    assert book.vendor(tmp_path) is False
    assert not list(tmp_path.iterdir())


def test_the_card_says_what_was_measured_and_what_was_not(monkeypatch):
    cpu = {"seconds": 41.4, "size": "lesson", "machine": "2 cores"}
    gpu = {"seconds": 9, "size": "lesson", "card": "a card", "peak_mb": 321.5, "commit": "c"}
    monkeypatch.setattr(book, "ledger", lambda: {"01_a": {"cpu": cpu, "gpu": None}, "03_b": {"cpu": cpu, "gpu": gpu}})
    assert str(book.card(1)) == "**Measured.** 41 s on a CPU (2 cores, size `lesson`); not yet run on a GPU."
    assert "9 s on a GPU (a card, size `lesson`, 322 MB at most)" in book.card(3)._repr_markdown_()
    assert str(book.card(4)) == "**Measured.** not yet run on a CPU; not yet run on a GPU."


def test_every_name_of_the_notation_table_is_in_the_library_or_marked_as_maths():
    from course_lib.confusion import NOTATION

    sources = "\n".join(path.read_text(encoding="utf-8") for path in (REPO / "course_lib").rglob("*.py"))
    for row in NOTATION:
        assert len(row) == 4 and all(row), row
        names = re.findall(r"[A-Za-z_]\w*", row[0].replace("`", ""))
        is_maths = row[0].startswith("$")
        assert is_maths or all(re.search(rf"\b{name}\b", sources) for name in names), (
            f"{row[0]} is nowhere in course_lib"
        )


def test_the_glossary_is_in_the_order_of_the_alphabet():
    words = re.findall(r"^\w.*$", (REPO / "book/glossary.md").read_text(encoding="utf-8").split("{glossary}")[1], re.M)
    plain = [re.sub(r"[^a-z ]", "", word.casefold()) for word in words]
    assert len(plain) > 60 and plain == sorted(plain)


def test_every_module_that_a_reader_may_import_is_on_the_page_of_the_library():
    named = re.findall(r"<!-- module ([\w.]+) -->", (REPO / "book/api.md").read_text(encoding="utf-8"))
    library = [path.relative_to(REPO / "course_lib").with_suffix("") for path in (REPO / "course_lib").rglob("*.py")]
    inner = {p.parts[0] for p in library} & {
        "experiments",
        "checks",
        "report",
    }  # of these, the package stands for its parts
    wanted = {".".join(p.parts) for p in library if p.name != "__init__" and p.parts[0] not in inner | {"cli"}}
    assert len(named) == len(set(named)) and set(named) == wanted | inner | {"experiments.claims"}


def test_the_front_page_takes_its_numbers_from_the_results(site):
    """Full supervision, denials alone, denials read naively; as a result was run anew, so does the page speak anew."""
    page = (site / "book/intro.html").read_text(encoding="utf-8")
    result = experiments.read(shipped("results/coarse-not-k.lesson.json"))
    for method in ("strong", "uniform", "naive"):
        mean = experiments.values(result, method, "miou", denied="uniform", share=1.0).mean()
        assert f"<strong>{mean:.3f}</strong>" in page, method
    assert "not k table" not in page and "notation table" not in page


# ---- opening it ------------------------------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def served(folder):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def address(site):
    with served(site) as url:
        yield url


@dataclass
class Visit:
    """A page opened with the network off, and what it said and asked for."""

    page: object
    messages: list[str] = field(default_factory=list)
    outward: list[str] = field(default_factory=list)


@contextlib.contextmanager
def visit(browser, url, size="desk", scheme="light"):
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    seen = Visit(context.new_page())

    def only_local(route):
        if route.request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            return route.continue_()
        seen.outward.append(route.request.url)
        return route.abort()

    context.route("**/*", only_local)
    seen.page.on("pageerror", lambda error: seen.messages.append(str(error)))
    seen.page.on("console", lambda m: seen.messages.append(m.text) if m.type == "error" else None)
    seen.page.goto(url, wait_until="load")
    seen.page.evaluate("window.MathJax?.startup?.promise?.then(() => null)")  # until the formulas are set
    seen.page.wait_for_timeout(300)  # widgets draw themselves after the page has loaded
    yield seen
    context.close()


def complaints(seen, vendored=True) -> list[str]:
    said = [m for m in seen.messages if not any(re.search(known, m) for known in ALLOWED_MESSAGES)]
    return said + [f"asks for {url}" for url in seen.outward if vendored or not WIDGET_CDN.match(url)]


def bad_images(page) -> list[str]:
    """Images that did not load, and images whose alternative text is empty or just a file's name."""
    return page.evaluate(
        """async () => {
          const name = img => img.currentSrc.slice(0, 80);
          const all = [...document.querySelectorAll("main img, article img")];
          all.forEach(img => { img.loading = "eager"; });
          await Promise.allSettled(all.map(img => img.decode()));
          const poor = alt => !alt || !alt.trim() || /\\.(png|svg|jpe?g|gif)$/i.test(alt.trim());
          return [...all.filter(img => !(img.naturalWidth > 0)).map(img => "not loaded: " + name(img)),
                  ...all.filter(img => poor(img.getAttribute("alt"))).map(img => "no alt text: " + name(img))];
        }"""
    )


def raw_source(page) -> list[str]:
    """Formulas, tables and references that stayed source text, and formulas that MathJax could not read."""
    return page.evaluate(
        """() => {
          const bare = [...document.querySelectorAll("main .math, article .math")]
            .filter(el => !el.querySelector("mjx-container")).map(el => el.textContent.slice(0, 60));
          const broken = [...document.querySelectorAll("mjx-merror, [data-mjx-error]")].map(el =>
            "error: " + (el.getAttribute("data-mjx-error") || el.textContent));
          const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
          const text = [];
          while (walker.nextNode()) {
            const node = walker.currentNode;
            const code = node.parentElement.closest("pre, code, script, mjx-container");
            if (/\\\\\\(|\\\\\\[|\\$\\$|\\| ?-{3,}|\\{(eq|doc|term|ref|cite)[:}]/.test(node.data) && !code)
              text.push(node.data.trim().slice(0, 60));
          }
          return [...bare, ...broken, ...text];
        }"""
    )


def overflow(page) -> list[str]:
    """What sticks out on the right, when the page itself scrolls sideways."""
    return page.evaluate(
        """() => {
          const wide = document.documentElement.clientWidth;
          if (document.documentElement.scrollWidth <= wide + 1) return [];
          const sticks = el => el.getBoundingClientRect().right > wide + 1;
          const out = [...document.querySelectorAll("main *")].filter(sticks);
          return ["page is " + document.documentElement.scrollWidth + " wide",
                  ...out.slice(0, 5).map(el => el.tagName + "." + el.className)];
        }"""
    )


def shut_folds(page) -> list[str]:
    """Folds that do not open on a click."""
    return page.evaluate(
        """() => [...document.querySelectorAll("main details")].filter(fold => {
          const was = fold.open;
          fold.querySelector("summary").click();
          return fold.open === was;
        }).map(fold => fold.textContent.trim().slice(0, 60))"""
    )


WCAG = ("wcag2a", "wcag2aa")
BY_COLOUR = ("color-contrast", "link-in-text-block")  # the only rules of these that a colour scheme can break


def axe(page, rules=WCAG, contrast: bool = True) -> list[str]:
    """Violations of WCAG 2 A and AA."""
    script = pytest.importorskip(
        "axe_core_python.base", reason="axe-core-python is not installed: pip install '.[dev]'"
    )
    page.evaluate(script.AXE_SCRIPT)
    # MathJax's own drawings are thousands of elements and nothing of ours: without them this is much faster.
    options = {
        "runOnly": rules,
        "resultTypes": ["violations"],
        "rules": {"color-contrast": {"enabled": contrast}},
    }
    found = page.evaluate("options => axe.run({exclude: ['mjx-container']}, options)", options)["violations"]
    return [
        f"{rule['id']}: {node['html'][:120]}"
        for rule in found
        for node in rule["nodes"]
        if not any(mark in node["html"] for mark in ALLOWED_AXE.get(rule["id"], ()))
    ]


def turn(page, size, scheme) -> None:
    """Give an open page another width and colour scheme, and wait until it has settled."""
    page.set_viewport_size(dict(zip(("width", "height"), SIZES[size], strict=True)))
    page.emulate_media(color_scheme=scheme)
    # The theme waits 300 ms after a resize before it makes what now scrolls reachable by keyboard; and colours fade
    # into each other, so that a contrast measured meanwhile is nobody's.
    page.evaluate(
        """async () => {
          await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
          await new Promise(done => setTimeout(done, 350));
          const fades = Promise.allSettled(document.getAnimations().map(fade => fade.finished));
          await Promise.race([fades, new Promise(done => setTimeout(done, 1000))]);
        }"""
    )
    theme = page.evaluate("document.documentElement.dataset.theme")
    assert theme == scheme, f"{size} {scheme}: the page's theme is {theme}"


def vendored(site) -> bool:
    return (site / "_static/vendor/embed-amd.js").exists()


def in_each_look(page) -> dict[str, list[str]]:
    """What a width or a scheme can spoil: the layout at each of both, the colours in each scheme."""
    found = {}
    for size, scheme in LOOKS:
        turn(page, size, scheme)
        found[f"overflow, {size} {scheme}"] = overflow(page)
        if size == "desk":
            found[f"accessibility, {size} {scheme}"] = axe(page, WCAG if scheme == "light" else BY_COLOUR)
        elif scheme == "light":  # colours are the same on a phone, and their contrast is nine tenths of the work
            found[f"accessibility, {size} {scheme}"] = axe(page, contrast=False)
    return found


@pytest.mark.parametrize("name", book.pages())
def test_the_page_is_whole(name, browser, site, address):
    with visit(browser, f"{address}/{name}.html") as seen:
        found = {
            "images": bad_images(seen.page),
            "source": raw_source(seen.page),
            **in_each_look(seen.page),
            "folds": shut_folds(seen.page),
            "says or asks": complaints(seen, vendored(site)),  # last, so that the turns and clicks count too
        }
        assert not {what: bad for what, bad in found.items() if bad}


@pytest.mark.parametrize("name", [page for page in book.pages() if page.startswith("notebooks/")])
def test_widgets_live_in_the_built_page(name, browser, site, address):
    if not vendored(site):
        pytest.skip(
            "the widgets' scripts are not in book/_static/vendor; course_lib.book.vendor() fetches them with npm"
        )
    with visit(browser, f"{address}/{name}.html") as seen:
        views = seen.page.locator("script[type='application/vnd.jupyter.widget-view+json']").count()
        seen.page.wait_for_timeout(700 if views else 0)
        drawn = seen.page.locator(".cell_output .lm-Widget, .cell_output .jupyter-widgets").count()
        assert drawn >= views
        assert "Click to show javascript error" not in seen.page.inner_text("main")


def test_search_finds_a_word_of_a_chapter(browser, address):
    with visit(browser, f"{address}/search.html?q=annotator") as seen:
        seen.page.wait_for_selector("#search-results li a", timeout=10_000)
        links = seen.page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.getAttribute('href'))")
        assert any("notebooks/01_annotators_disagree" in link for link in links)


PLANTED = """<!doctype html><html lang="en" data-theme="light"><head><title>bad</title></head><body><main>
<p>raw \\(x^2\\)</p><p>| a |\n| --- |</p><img src="absent.png" alt="a picture"><img src="ok.svg" alt="ok.svg">
<div style="width: 2000px">wide</div><details><summary onclick="event.preventDefault()">fold</summary>in</details>
<p style="color: #eee; background: #fff">pale</p>
<script src="https://example.org/x.js"></script><script>undefined_function()</script></main></body></html>"""


def test_each_look_at_a_page_finds_what_is_planted(tmp_path, browser):
    (tmp_path / "bad.html").write_text(PLANTED, encoding="utf-8")
    (tmp_path / "ok.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="5" height="5"></svg>')
    with served(tmp_path) as url, visit(browser, f"{url}/bad.html", "phone") as seen:
        said = complaints(seen)
        assert any("undefined_function" in line for line in said)
        assert "asks for https://example.org/x.js" in said
        assert [line.split(":")[0] for line in bad_images(seen.page)] == ["not loaded", "no alt text"]
        assert raw_source(seen.page) == ["raw \\(x^2\\)", "| a |\n| --- |"]
        assert overflow(seen.page)
        assert shut_folds(seen.page) == ["foldin"]
        assert any(line.startswith("color-contrast") for line in axe(seen.page))


RESPONSIVE = """<!doctype html><html lang="en"><head><title>t</title><style>[data-theme=dark] p { color: #ddd; }</style>
</head><body><main><p>pale in the dark</p><div style="width: 600px">wide on a phone</div></main><script>
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; };
follow(); dark.onchange = follow;</script></body></html>"""


def test_what_one_width_or_one_scheme_spoils_is_named_by_both(tmp_path, browser):
    (tmp_path / "good.html").write_text(RESPONSIVE, encoding="utf-8")
    (tmp_path / "stuck.html").write_text(RESPONSIVE.replace("dark.onchange = follow", ""), encoding="utf-8")
    with served(tmp_path) as url:
        with visit(browser, f"{url}/good.html") as seen:
            bad = {what for what, found in in_each_look(seen.page).items() if found}
            assert bad == {"accessibility, desk dark", "overflow, phone light", "overflow, phone dark"}
        with visit(browser, f"{url}/stuck.html") as seen, pytest.raises(AssertionError, match="desk dark.*is light"):
            in_each_look(seen.page)
