// Label blurred digits one by one. All logic lives here, so that the page of a built book, without Python, works too.
const MISSING = -1;
// On whatever can have the focus; else a key pressed there makes a heading in JupyterLab, or cuts the cell.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function button(text, label, onClick) {
  const node = make("button", { type: "button", "aria-label": label, ...OWN_KEYS }, text);
  node.addEventListener("click", onClick);
  return node;
}

// Bytes come as a DataView: N pictures of side x side, 255 is full ink.
function draw(canvas, bytes, n, side) {
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(side, side);
  for (let k = 0; k < side * side; k++) {
    picture.data.fill(255 - bytes.getUint8(n * side * side + k), 4 * k, 4 * k + 3);
    picture.data[4 * k + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

function render({ model, el }) {
  const bytes = model.get("images");
  const N = model.get("answers").length;
  const side = Math.round(Math.sqrt(bytes.byteLength / N));
  let at = Math.max(0, model.get("answers").indexOf(MISSING));
  let finished = !model.get("answers").includes(MISSING);
  let changing = finished; // after the end, an answer leads back to the end

  const canvas = make("canvas", { role: "img" });
  const status = make("p", { role: "status" });
  const digits = make("div", { class: "digits", role: "group", "aria-label": "Which digit is it?" });
  for (let d = 0; d < 10; d++) digits.append(button(String(d), `it is a ${d}`, () => answer(d)));
  const back = button("back", "back to the picture before", () => show(at - 1));
  const skip = button("skip", "skip this picture", () => answer(MISSING));
  const dots = make("div", { class: "dots", "aria-hidden": "true" });
  for (let n = 0; n < N; n++) dots.append(make("span"));
  const ask = make("div", { class: "ask" }, canvas, digits, make("div", { class: "moves" }, back, skip), dots);

  const grid = make("div", { class: "grid" });
  const again = button("start again", "forget all answers and start again", () => {
    changing = false;
    save(Array(N).fill(MISSING));
    show(0);
  });
  const hint = make("p", {}, "Press a picture to change its answer. In a running notebook, the cells below use your answers.");
  const done = make("div", { class: "done" }, grid, hint, again);
  const name = { role: "group", "aria-label": "Label the digits" };
  const root = make("div", { class: "label-digits", tabindex: "0", ...name, ...OWN_KEYS }, status, ask, done);

  function save(answers) {
    model.set("answers", answers);
    model.save_changes();
  }

  function answer(digit) {
    const answers = [...model.get("answers")];
    answers[at] = digit;
    save(answers);
    show(changing ? N : at + 1);
  }

  function show(n) {
    const was = finished;
    finished = n >= N;
    changing ||= finished;
    at = Math.max(0, Math.min(n, N - 1));
    update();
    if (was !== finished) root.focus({ preventScroll: true }); // the button that had the focus is hidden now
  }

  function update() {
    const answers = model.get("answers");
    ask.hidden = finished;
    done.hidden = !finished;
    const given = answers.filter((a) => a !== MISSING).length;
    if (finished) {
      status.textContent = `Done: you labelled ${given} of ${N} pictures.`;
      grid.replaceChildren(...answers.map(small));
      return;
    }
    const before = answers[at] === MISSING ? "" : ` You said ${answers[at]}.`;
    status.textContent = `Picture ${at + 1} of ${N}: which digit is it?${before}`;
    canvas.setAttribute("aria-label", `a blurred digit, picture ${at + 1}`);
    draw(canvas, bytes, at, side);
    back.disabled = at === 0;
    [...digits.children].forEach((b, d) => b.setAttribute("aria-pressed", String(answers[at] === d)));
    [...dots.children].forEach((dot, k) => {
      dot.className = (k === at ? "here " : "") + (answers[k] === MISSING ? "" : "given");
    });
  }

  function small(said, n) {
    const picture = make("canvas");
    draw(picture, bytes, n, side);
    const text = said === MISSING ? "–" : String(said);
    const spoken = said === MISSING ? "no answer" : `you said ${said}`;
    const node = button("", `change picture ${n + 1}: ${spoken}`, () => show(n));
    node.append(picture, make("span", {}, text));
    return node;
  }

  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || finished) return;
    if (/^[0-9]$/.test(event.key)) answer(Number(event.key));
    else if (event.key === "Backspace" || event.key === "ArrowLeft") show(at - 1);
    else if (event.key === "ArrowRight") answer(model.get("answers")[at]);
    else return;
    event.preventDefault();
  });
  model.on("change:answers", update);
  el.append(root);
  update();
  return () => model.off("change:answers", update);
}

export default { render };
