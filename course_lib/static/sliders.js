// Two sliders over confusion matrices. All numbers are computed here or were sent along, so that the page of a built
// book, without Python, works too. `matrixOf`, `saidOf` and `marginOf` are the formulas of sliders.py, held together by a test.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" }; // else JupyterLab takes the keys
const KINDS = ["hammer-spammer", "pairwise flip", "neighbour confuser"];
const SVG = "http://www.w3.org/2000/svg";
// cividis at 0, 1/8, ..., 1: the colours of the still figures
const CIVIDIS = [[0, 34, 78], [23, 51, 111], [66, 78, 108], [95, 105, 111], [125, 124, 120], [156, 147, 117], [190, 172, 105], [224, 200, 83], [254, 232, 56]];

function matrixOf(kind, skill, L) {
  const rest = 1 - skill;
  const wrong = [
    () => rest / L,
    (i, j) => (i === (j + 1) % L ? rest : 0),
    (i, j) => ((i === (j + 1) % L) + (j === (i + 1) % L)) * (rest / 2),
  ][kind];
  return Array.from({ length: L }, (_, i) => Array.from({ length: L }, (_, j) => (i === j ? skill : 0) + wrong(i, j)));
}

const saidOf = (A, p) => A.map((row) => row.reduce((sum, a, j) => sum + a * p[j], 0));

// Along the row of what is said: the smallest lead of the diagonal.
const marginOf = (A) => Math.min(...A.flatMap((row, i) => row.filter((_, j) => j !== i).map((a) => row[i] - a)));

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function shade(v) {
  const x = 8 * Math.max(0, Math.min(1, v));
  const k = Math.min(7, Math.floor(x));
  const rgb = CIVIDIS[k].map((c, n) => c + (x - k) * (CIVIDIS[k + 1][n] - c));
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const ink = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "black" : "white"; // at least 4.5 to 1
  return { background: `rgb(${rgb.map(Math.round)})`, ink };
}

// A table of shades with numbers, made once; `show(A)` fills it.
function matrixTable(L, title) {
  const table = make("table", { class: L > 5 ? "many" : "few" }, make("caption", {}, title));
  const head = make("tr", {}, make("td"));
  for (let j = 0; j < L; j++) head.append(make("th", { scope: "col", "aria-label": `truth ${j}` }, String(j)));
  const body = make("tbody");
  const cells = [];
  for (let i = 0; i < L; i++) {
    const row = make("tr", {}, make("th", { scope: "row", "aria-label": `says ${i}` }, String(i)));
    cells.push(Array.from({ length: L }, () => row.appendChild(make("td"))));
    body.append(row);
  }
  table.append(make("thead", {}, head), body);
  const show = (A) => cells.forEach((row, i) => row.forEach((cell, j) => {
    const { background, ink } = shade(A[i][j]);
    const text = A[i][j].toFixed(2);
    cell.textContent = L <= 5 ? text : text === "0.00" ? "·" : text === "1.00" ? "1" : text.slice(1);
    cell.dataset.p = String(A[i][j]);
    cell.style.setProperty("background", background, "important"); // a page's stripes must not hide the numbers
    cell.style.setProperty("color", ink, "important");
  }));
  return { table, show };
}

// Two bars a class: how probable the truth is (the page's ink), and how probable it is to be said (orange).
function bars(L) {
  const node = document.createElementNS(SVG, "svg");
  node.setAttribute("viewBox", "0 0 240 150");
  node.setAttribute("role", "img");
  const part = (tag, attributes, text = "") => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    node.append(made);
  };
  const show = (p, said) => {
    node.replaceChildren();
    node.setAttribute("aria-label", p.map((v, j) => `class ${j}: truth ${v.toFixed(2)}, says ${said[j].toFixed(2)}`).join("; "));
    const step = 240 / L;
    p.forEach((v, j) => {
      [[v, "truth", 0.12], [said[j], "said", 0.52]].forEach(([height, kind, at]) => {
        const x = step * (j + at);
        part("rect", { class: kind, x, y: 130 - 110 * height, width: 0.36 * step, height: 110 * height });
        if (L <= 5) part("text", { x: x + 0.18 * step, y: 126 - 110 * height }, height.toFixed(2).slice(height < 0.995 ? 1 : 0));
      });
      part("text", { x: step * (j + 0.5), y: 145 }, String(j));
    });
  };
  return { node, show };
}

function slider(name, steps, at, onInput) {
  const input = make("input", { type: "range", "aria-label": name, min: 0, max: steps, step: 1, ...OWN_KEYS });
  const text = make("span");
  input.value = at;
  input.addEventListener("input", () => onInput(Number(input.value)));
  return { label: make("label", {}, text, input), input, text };
}

function matrixSlider(model, root) {
  const p = model.get("p");
  const set = (name, value) => {
    model.set(name, value);
    model.save_changes();
    update();
  };
  const kinds = make("fieldset", {}, make("legend", {}, "When the annotator does not know"));
  const group = `kind-${Math.random()}`; // radios of two widgets on a page must not be one group
  const radios = KINDS.map((name, k) => {
    const input = make("input", { type: "radio", name: group, value: k, ...OWN_KEYS });
    input.addEventListener("change", () => set("kind", k));
    kinds.append(make("label", {}, input, name));
    return input;
  });
  const skill = slider("skill", 100, Math.round(100 * model.get("skill")), (v) => set("skill", v / 100));
  const matrix = matrixTable(p.length, "A: columns truth, rows says");
  const chart = bars(p.length);
  const beside = make("div", {}, make("p", {}, "left bars: truth p; orange: says A p"), chart.node);
  const status = make("p", { role: "status" });
  root.setAttribute("aria-label", "An annotator's matrix, by skill and kind");
  root.append(kinds, skill.label, make("div", { class: "drawn" }, matrix.table, beside), status);

  function update() {
    const A = matrixOf(model.get("kind"), model.get("skill"), p.length);
    const margin = marginOf(A);
    skill.text.textContent = `skill ${model.get("skill").toFixed(2)}`;
    skill.input.value = Math.round(100 * model.get("skill"));
    radios.forEach((radio, k) => { radio.checked = k === model.get("kind"); });
    matrix.show(A);
    chart.show(p, saidOf(A, p));
    status.dataset.margin = String(margin);
    const verdict = margin > 1e-9 ? "each diagonal entry leads its row" : "a diagonal entry does not lead its row";
    status.textContent = `Margin of dominance ${Math.abs(margin) < 0.005 ? "0.00" : margin.toFixed(2)}: ${verdict}.`;
  }
  return update;
}

function lambdaSlider(model, root) {
  const lambdas = model.get("lambdas");
  const matrices = model.get("matrices");
  const chosen = slider("lambda", lambdas.length - 1, model.get("at"), (k) => {
    model.set("at", k);
    model.save_changes();
    update();
  });
  const matrix = matrixTable(matrices[0].length, "learned matrix: columns truth, rows says");
  const status = make("p", { role: "status" });
  root.setAttribute("aria-label", "What was learned, by lambda");
  root.append(chosen.label, matrix.table, status);

  function update() {
    const k = model.get("at");
    chosen.text.textContent = `lambda ${lambdas[k]}`;
    chosen.input.value = k;
    chosen.input.setAttribute("aria-valuetext", `lambda ${lambdas[k]}`);
    matrix.show(matrices[k]);
    const numbers = `accuracy ${model.get("accuracies")[k].toFixed(3)}, CM error ${model.get("errors")[k].toFixed(3)}`;
    status.textContent = `Lambda ${lambdas[k]}: ${numbers}.`;
  }
  return update;
}

function render({ model, el }) {
  const root = make("div", { class: "sliders", role: "group" });
  const update = { matrix: matrixSlider, lambda: lambdaSlider }[model.get("view")](model, root);
  const heard = ["kind", "skill", "at"].map((name) => `change:${name}`);
  heard.forEach((name) => model.on(name, update));
  el.append(root);
  update();
  return () => heard.forEach((name) => model.off(name, update));
}

export default { render };
