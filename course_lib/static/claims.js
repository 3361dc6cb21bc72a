// Hides the rows of tables that came as HTML, so that the page of a built book, without Python, can filter too.
const OWN_KEYS = "data-lm-suppress-shortcuts"; // else JupyterLab takes the keys

function labelled(name, control) {
  const label = document.createElement("label");
  control.setAttribute(OWN_KEYS, "true");
  label.append(name, control);
  return label;
}

function render({ model, el }) {
  const root = document.createElement("div");
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Find claims");
  const words = document.createElement("input");
  words.type = "search";
  const verdict = document.createElement("select");
  for (const name of model.get("verdicts")) verdict.append(new Option(name, name));
  const status = document.createElement("p");
  status.setAttribute("role", "status");
  const tables = document.createElement("div");
  tables.innerHTML = model.get("html"); // made by claim_tables.py, where every text is escaped
  root.className = "claims";
  root.append(labelled("words ", words), labelled("verdict ", verdict), status, tables);
  const set = (name, control) => {
    model.set(name, control.value);
    model.save_changes();
    update();
  };
  words.addEventListener("input", () => set("words", words));
  verdict.addEventListener("change", () => set("verdict", verdict));

  function update() {
    words.value = model.get("words");
    verdict.value = model.get("verdict");
    const all = model.get("verdicts")[0];
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const filtering = wanted.length > 0 || verdict.value !== all;
    let found = 0;
    for (const fold of tables.querySelectorAll("details")) {
      let here = 0;
      for (const row of fold.querySelectorAll("tbody tr")) {
        const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
        const fits = [all, row.dataset.verdict].includes(verdict.value) && wanted.every((word) => text.includes(word));
        row.hidden = !fits;
        here += fits;
      }
      fold.hidden = here === 0;
      fold.open = filtering && here > 0;
      fold.querySelector("summary span").textContent = String(here);
      found += here;
    }
    status.textContent = `${found} of ${tables.querySelectorAll("tbody tr").length} claims`;
  }
  const heard = ["change:words", "change:verdict"];
  heard.forEach((name) => model.on(name, update));
  el.append(root);
  update();
  return () => heard.forEach((name) => model.off(name, update));
}

export default { render };
