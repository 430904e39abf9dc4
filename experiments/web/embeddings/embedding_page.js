// The controls, and what is told of the token under the pointer or of the one that is chosen.

const data = JSON.parse(document.getElementById("data").textContent);
const part = (id) => document.getElementById(id);
const map = new TokenMap(part("map"));
const tables = data.tables.map((_, number) => readTable(data, number));
let table = null;
let current = -1; // place of the chosen token among the matches

function add(parent, tag, attributes = {}) {
  const svg = ["svg", "circle", "polygon"].includes(tag);
  const element = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return parent.appendChild(element);
}

function addChoice(parent, type, text, attributes) {
  const label = add(parent, "label");
  const input = add(label, "input", { type, ...attributes });
  const mark = add(label, "span");
  label.append(text);
  return { input, mark };
}

// -- the token

function tell() {
  const token = map.hovered ?? map.selected;
  part("hint").hidden = token !== null;
  part("told").hidden = token === null;
  if (token === null) return;
  part("token").textContent = table.pieces[token];
  part("about").textContent = `id ${token}, ${data.kinds[table.kinds[token]]}`;
  const shown = map.map.count;
  part("aside").textContent =
    token < shown ? "" : `Not on this map, which has the first ${shown.toLocaleString("en")}.`;
  neighboursOf(table, token).forEach(({ token: other, cosine }, rank) => {
    const button = part("neighbours").children[rank].firstChild;
    button.value = other;
    button.firstChild.textContent = table.pieces[other];
    button.lastChild.textContent = cosine.toFixed(2);
  });
}

function choose(token) {
  map.selected = token;
  map.hovered = null;
  map.redraw();
  tell();
}

function goTo(token) {
  choose(token);
  map.centre(token);
}

function addNeighbours() {
  part("neighbours").replaceChildren();
  for (let rank = 0; rank < table.each; rank++) {
    const button = add(add(part("neighbours"), "li"), "button", { type: "button" });
    add(button, "bdi");
    add(button, "span");
    button.addEventListener("click", () => goTo(Number(button.value)));
  }
}

// -- the search

function find() {
  const query = part("search").value.trim();
  map.matches = search(table, query);
  current = -1;
  if (map.matches.length) return step(1);
  part("found").textContent = query ? `No token has “${query}” in it.` : "";
  map.redraw();
}

function step(by) {
  const count = map.matches.length;
  if (!count) return;
  current = (current + by + count) % count;
  goTo(map.matches[current]);
  const of = `${current + 1} of ${count.toLocaleString("en")}`;
  const more = count > 1 ? "; Enter shows the next" : "";
  part("found").textContent = `${of}: ${table.pieces[map.matches[current]]}${more}`;
}

// -- which map

function showMap(number) {
  map.show(table, table.maps[number]);
  part("title").textContent = table.maps[number].title;
  tell();
}

function showTable(number) {
  table = tables[number];
  map.selected = map.hovered = null;
  map.matches = [];
  const method = document.querySelector("#methods :checked");
  const before = method ? method.parentElement.textContent : "";
  const same = table.maps.findIndex((each) => each.method === before);
  part("methods").replaceChildren(part("methods").firstElementChild);
  table.maps.forEach((each, place) => {
    const { input } = addChoice(part("methods"), "radio", each.method, { name: "method" });
    input.checked = place === Math.max(same, 0);
    input.addEventListener("change", () => showMap(place));
  });
  addNeighbours();
  showMap(Math.max(same, 0));
  find();
}

tables.forEach((each, number) => {
  add(part("table"), "option", { value: number }).textContent = each.name;
});
part("tables").hidden = tables.length === 1;
part("table").addEventListener("change", (event) => showTable(Number(event.target.value)));
data.kinds.forEach((name, kind) => {
  const { input, mark } = addChoice(part("kinds"), "checkbox", name, { checked: "" });
  const svg = add(mark, "svg", { viewBox: "-1.6 -1.6 3.2 3.2", "aria-hidden": "true" });
  svg.style.fill = `var(${COLOURS[kind]})`;
  if (SHAPES[kind]) add(svg, "polygon", { points: SHAPES[kind].flat().join(" ") });
  else add(svg, "circle", { r: 1.1 });
  input.addEventListener("change", () => {
    map.hidden[input.checked ? "delete" : "add"](kind);
    map.redraw();
  });
});
part("search").addEventListener("input", find);
part("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
});
part("closer").addEventListener("click", () => map.zoom(1.6));
part("farther").addEventListener("click", () => map.zoom(1 / 1.6));
part("whole").addEventListener("click", () => map.fit());
addGestures(map, {
  hover(token) {
    if (token === map.hovered) return;
    map.hovered = token;
    map.redraw();
    tell();
  },
  pick: choose,
});
showTable(0);
