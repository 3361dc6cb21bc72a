// Paint "this is it" and "this is not it" on pictures. All logic lives here, so that the page of a built book, without
// Python, works too; paintLine stands a second time in paint.py, and a test compares the two.
const POSITIVE = 1, NEGATIVE = 2, NOTHING = 0; // what a byte of `strokes` says
const KINDS = [[POSITIVE, "+ this is it", "p"], [NEGATIVE, "− this is not it", "n"], [NOTHING, "eraser", "e"]];
const BRUSHES = [0, 1, 2]; // radii; 2 r + 1 pixels wide
const SAYS = { [POSITIVE]: "this is it", [NEGATIVE]: "this is not it", [NOTHING]: "no mark" };
const COLOURS = { [POSITIVE]: "#e69f00", [NEGATIVE]: "#56b4e9" };
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const REMEMBERED = 100; // strokes that can be undone
// On whatever can have the focus; else a key pressed there makes a heading in JupyterLab, or cuts the cell.
const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" };

// Gives every pixel nearer to the line than radius + 1/2 its kind. cells: H x W bytes; start, end: [x, y].
export function paintLine(cells, H, W, [x0, y0], [x1, y1], radius, kind) {
  const dx = x1 - x0, dy = y1 - y0;
  const length = Math.max(dx * dx + dy * dy, 1);
  const reach = (2 * radius + 1) * length;
  for (let y = 0; y < H; y++) {
    for (let x = 0; x < W; x++) {
      const along = Math.max(0, Math.min((x - x0) * dx + (y - y0) * dy, length));
      const farX = 2 * ((x - x0) * length - along * dx), farY = 2 * ((y - y0) * length - along * dy);
      if (farX * farX + farY * farY <= reach * reach) cells[y * W + x] = kind;
    }
  }
}

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

const press = (node, on) => node.setAttribute("aria-pressed", String(on));
const count = (cells, kind) => cells.reduce((n, cell) => n + (cell === kind), 0);

function render({ model, el }) {
  const [N, H, W, C] = model.get("shape");
  const side = Math.max(4, Math.floor(480 / Math.max(H, W))); // of a pixel, on the canvas
  const bytes = (name) => new Uint8Array(model.get(name).buffer, model.get(name).byteOffset, model.get(name).byteLength);
  const inks = bytes("images");
  let strokes = bytes("strokes").slice();
  let at = 0, kind = POSITIVE, radius = 1, outlined = true;
  let cursor = [W >> 1, H >> 1], byKey = false; // byKey: the cursor is shown
  let stroke = null; // { pointer, kind, last, before } while one is drawn
  let past = []; // { at, before }: pictures as they were, to undo

  const hint = "Drag over the picture to paint. Keys: the arrows move a cursor, space paints there, shift with an arrow " +
    "draws; P, N and E choose the brush, 1 to 3 its width; U undoes; page up and page down change the picture. " +
    "In a running notebook, the cells below use your strokes.";
  const id = `paint-hint-${Math.random().toString(36).slice(2)}`;
  const status = make("p", { role: "status" });
  const picture = { role: "application", tabindex: "0", "aria-describedby": id, ...OWN_KEYS };
  const canvas = make("canvas", { width: W * side, height: H * side, ...picture });
  canvas.style.aspectRatio = `${W} / ${H}`;
  const context = canvas.getContext("2d");
  const small = make("canvas", { width: W, height: H });
  const kinds = make("div", { class: "kinds", role: "group", "aria-label": "Brush" });
  for (const [value, text] of KINDS) {
    const node = button("", text.replace(/^[+−] /, ""), () => choose(value));
    node.append(make("span", { class: "swatch", style: `background: ${COLOURS[value] ?? "transparent"}` }), text);
    kinds.append(node);
  }
  const widths = make("div", { class: "widths", role: "group", "aria-label": "Width of the brush" });
  for (const r of BRUSHES) {
    const text = r ? `${2 * r + 1} pixels` : "1 pixel";
    widths.append(button(text, `brush ${text} wide`, () => widen(r)));
  }
  const back = button("back", "back to the picture before", () => show(at - 1));
  const next = button("next", "next picture", () => show(at + 1));
  const undo = button("undo", "undo the last stroke", takeBack);
  const clear = button("clear", "clear this picture", () => change((cells) => cells.fill(NOTHING)));
  const outline = button("outline", "outline what the network found", () => {
    outlined = !outlined;
    update();
  });
  const moves = make("div", { class: "moves" }, back, next, undo, clear);
  const name = { role: "group", "aria-label": "Paint strokes" };
  const root = make("div", { class: "paint-strokes", ...name }, status, canvas, kinds, widths, moves, outline);
  root.append(make("p", { class: "hint", id }, hint));

  const here = () => strokes.subarray(at * H * W, (at + 1) * H * W);
  const marked = ([x, y]) => here()[y * W + x];

  function remember(before) {
    if (before.every((cell, k) => cell === here()[k])) return;
    past = [...past, { at, before }].slice(-REMEMBERED);
    save();
  }

  function save() {
    model.set("strokes", new DataView(strokes.slice().buffer));
    model.save_changes();
  }

  function change(edit) {
    const before = here().slice();
    edit(here());
    remember(before);
    update();
  }

  function takeBack() {
    const last = past.pop();
    if (!last) return;
    at = last.at;
    here().set(last.before);
    save();
    update();
  }

  function choose(value) {
    kind = value;
    update();
  }

  function widen(value) {
    radius = value;
    update();
  }

  function show(n) {
    at = Math.max(0, Math.min(n, N - 1));
    update();
  }

  function drawPicture() {
    const data = new ImageData(W, H);
    for (let k = 0; k < H * W; k++) {
      for (let c = 0; c < 3; c++) data.data[4 * k + c] = inks[(at * H * W + k) * C + (C === 1 ? 0 : c)];
      data.data[4 * k + 3] = 255;
    }
    small.getContext("2d").putImageData(data, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, W * side, H * side);
  }

  // Colour and a sign: plus, or minus.
  function drawMarks() {
    const arm = side * 0.3, thick = Math.max(1, Math.round(side / 8));
    here().forEach((mark, k) => {
      if (mark === NOTHING) return;
      const x = (k % W) * side, y = Math.floor(k / W) * side;
      context.globalAlpha = 0.65;
      context.fillStyle = COLOURS[mark];
      context.fillRect(x, y, side, side);
      context.globalAlpha = 1;
      context.fillStyle = "black";
      context.fillRect(x + side / 2 - arm, y + (side - thick) / 2, 2 * arm, thick);
      if (mark === POSITIVE) context.fillRect(x + (side - thick) / 2, y + side / 2 - arm, thick, 2 * arm);
    });
  }

  // A white line with black dashes, around what the network finds likelier than not.
  function drawOutline(found) {
    const inside = (x, y) => x >= 0 && x < W && y >= 0 && y < H && found[y * W + x] > 127;
    context.beginPath();
    for (let y = 0; y <= H; y++) {
      for (let x = 0; x <= W; x++) {
        if (inside(x, y) !== inside(x - 1, y)) context.rect(x * side, y * side, 0, side);
        if (inside(x, y) !== inside(x, y - 1)) context.rect(x * side, y * side, side, 0);
      }
    }
    for (const [colour, width, dash] of [["white", 4, []], ["black", 2, [side / 2, side / 2]]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: width });
      context.setLineDash(dash);
      context.stroke();
    }
    context.setLineDash([]);
  }

  function drawCursor() {
    const [x, y] = cursor.map((v) => (v - radius) * side);
    for (const [colour, width] of [["black", 5], ["white", 2]]) {
      Object.assign(context, { strokeStyle: colour, lineWidth: width });
      context.strokeRect(x, y, (2 * radius + 1) * side, (2 * radius + 1) * side);
    }
  }

  function draw() {
    drawPicture();
    drawMarks();
    const found = bytes("overlay");
    if (found.length && outlined) drawOutline(found.subarray(at * H * W, (at + 1) * H * W));
    if (byKey) drawCursor();
  }

  function update() {
    const cells = here(), found = bytes("overlay").subarray(at * H * W, (at + 1) * H * W);
    const said = [POSITIVE, NEGATIVE].map((k) => `${count(cells, k)} of “${SAYS[k]}”`).join(", ");
    const where = byKey ? ` Cursor in row ${cursor[1] + 1}, column ${cursor[0] + 1}: ${SAYS[marked(cursor)]}.` : "";
    const share = Math.round((100 * found.filter((v) => v > 127).length) / (H * W));
    const network = found.length && outlined ? ` Outlined, ${share} % of the picture: what the network found.` : "";
    status.textContent = `Picture ${at + 1} of ${N}. Pixels marked: ${said}.${network}${where}`;
    canvas.setAttribute("aria-label", `picture ${at + 1}, to paint on`);
    [...kinds.children].forEach((node, k) => press(node, KINDS[k][0] === kind));
    [...widths.children].forEach((node, k) => press(node, BRUSHES[k] === radius));
    press(outline, outlined);
    outline.hidden = found.length === 0;
    back.disabled = at === 0;
    next.disabled = at === N - 1;
    undo.disabled = past.length === 0;
    clear.disabled = cells.every((cell) => cell === NOTHING);
    // A button that is disabled while it has the focus would swallow the keys
    if (root.getRootNode().activeElement?.disabled) canvas.focus({ preventScroll: true });
    draw();
  }

  // The pixel under the pointer; beyond the edge as well, since a stroke may leave the picture and come back.
  function pixel(event) {
    const box = canvas.getBoundingClientRect();
    return [[event.clientX - box.left, box.width, W], [event.clientY - box.top, box.height, H]].map(
      ([far, size, n]) => Math.max(-n, Math.min(Math.floor((far / size) * n), 2 * n)),
    );
  }

  canvas.addEventListener("pointerdown", (event) => {
    const rubber = event.button === 5; // the other end of a pen
    if (stroke || (event.button !== 0 && !rubber)) return;
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    byKey = false;
    stroke = { pointer: event.pointerId, kind: rubber ? NOTHING : kind, last: pixel(event), before: here().slice() };
    paintLine(here(), H, W, stroke.last, stroke.last, radius, stroke.kind);
    draw();
  });

  canvas.addEventListener("pointermove", (event) => {
    if (stroke?.pointer !== event.pointerId) return;
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const each of passed.length ? passed : [event]) {
      const to = pixel(each);
      paintLine(here(), H, W, stroke.last, to, radius, stroke.kind);
      stroke.last = to;
    }
    draw();
  });

  function end(event) {
    if (stroke?.pointer !== event.pointerId) return;
    const { before } = stroke;
    stroke = null;
    remember(before);
    update();
  }
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"]) canvas.addEventListener(type, end);

  function step([dx, dy], paints) {
    const from = cursor;
    cursor = [Math.max(0, Math.min(from[0] + dx, W - 1)), Math.max(0, Math.min(from[1] + dy, H - 1))];
    byKey = true;
    change((cells) => paints && paintLine(cells, H, W, from, cursor, radius, kind));
  }

  function onCanvas(event) {
    if (KEYS[event.key]) step(KEYS[event.key], event.shiftKey);
    else if (event.key === " ") step([0, 0], true);
    else return false;
    return true;
  }

  root.addEventListener("keydown", (event) => {
    const key = event.key.toLowerCase();
    const undoes = key === "u" || (key === "z" && (event.ctrlKey || event.metaKey));
    if (stroke || event.altKey || ((event.ctrlKey || event.metaKey) && !undoes)) return;
    const brush = KINDS.find(([, , letter]) => letter === key);
    if (event.target === canvas && onCanvas(event)) event.preventDefault();
    else if (undoes) takeBack();
    else if (brush) choose(brush[0]);
    else if (/^[1-3]$/.test(key)) widen(BRUSHES[Number(key) - 1]);
    else if (key === "pageup") show(at - 1);
    else if (key === "pagedown") show(at + 1);
    else return;
    event.preventDefault();
  });

  // Somebody else's strokes, Python's or another view's: what was done here cannot be undone any more.
  function taken() {
    const theirs = bytes("strokes");
    if (theirs.some((cell, k) => cell !== strokes[k])) {
      if (stroke && canvas.hasPointerCapture(stroke.pointer)) canvas.releasePointerCapture(stroke.pointer);
      [strokes, stroke, past] = [theirs.slice(), null, []];
    }
    update();
  }
  model.on("change:strokes", taken);
  model.on("change:overlay", update);
  el.append(root);
  update();
  return () => {
    model.off("change:strokes", taken);
    model.off("change:overlay", update);
  };
}

export default { render };
