// The map on its canvas: marks by kind, names where there is room, and what is chosen.

// Corners of each kind's mark, of a radius about 1; the first kind's is a circle.
const SHAPES = [
  null,
  [[0, -1.25], [1.15, 0.85], [-1.15, 0.85]],
  [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  [[0, -1.5], [1.5, 0], [0, 1.5], [-1.5, 0]],
];
const COLOURS = ["--blue", "--orange", "--green", "--ink"];
const FONT_SIZE = 12;
const CANDIDATES = 3000; // tokens that are tried for a name
const PIXELS_OF_NAME = 3000; // of the canvas, for each name
const MAX_RINGS = 100; // around what the search finds
const AT_ONCE = 100; // marks in a path: both fewer and many more take longer to fill
const CLOSEST = 200; // times the scale at which all is seen

// Adds the outline of a kind's mark to the path of a canvas.
function trace(context, kind, x, y, radius) {
  if (SHAPES[kind] === null) {
    context.moveTo(x + radius, y);
    context.arc(x, y, radius, 0, 2 * Math.PI);
    return;
  }
  SHAPES[kind].forEach(([dx, dy], corner) => {
    const to = [x + radius * dx, y + radius * dy];
    if (corner) context.lineTo(...to);
    else context.moveTo(...to);
  });
  context.closePath();
}

class TokenMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.widths = new Map();
    this.hidden = new Set();
    this.matches = [];
    this.selected = this.hovered = null;
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  show(table, map) {
    if (table !== this.table) this.widths.clear();
    [this.table, this.map] = [table, map];
    this.fit();
  }

  resize() {
    const first = !this.size;
    const box = this.canvas.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    this.size = { width: box.width, height: box.height };
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (first || this.scale <= this.least) this.fit();
    this.redraw();
  }

  // Shows all.
  fit() {
    if (!this.size || !this.map) return;
    let [right, top] = [1, 1];
    for (let i = 0; i < this.map.points.length; i += 2) {
      right = Math.max(right, this.map.points[i]);
      top = Math.max(top, this.map.points[i + 1]);
    }
    this.least = 0.92 * Math.min(this.size.width / right, this.size.height / top);
    [this.x, this.y, this.scale] = [right / 2, top / 2, this.least];
    this.redraw();
  }

  move(dx, dy) {
    this.x -= dx / this.scale;
    this.y += dy / this.scale;
    this.redraw();
  }

  // Zooms about a place of the canvas.
  zoom(factor, left = this.size.width / 2, top = this.size.height / 2) {
    const scale = Math.min(Math.max(this.scale * factor, this.least / 2), CLOSEST * this.least);
    const change = 1 / this.scale - 1 / scale;
    this.x += (left - this.size.width / 2) * change;
    this.y -= (top - this.size.height / 2) * change;
    this.scale = scale;
    this.redraw();
  }

  centre(token) {
    if (token >= this.map.count) return;
    [this.x, this.y] = this.map.points.subarray(2 * token, 2 * token + 2);
    this.scale = Math.max(this.scale, 5 * this.least);
    this.redraw();
  }

  place(token) {
    return [
      this.size.width / 2 + (this.map.points[2 * token] - this.x) * this.scale,
      this.size.height / 2 - (this.map.points[2 * token + 1] - this.y) * this.scale,
    ];
  }

  // The token nearest to a place of the canvas, or null where none is near.
  at(left, top, reach) {
    let [found, least] = [null, reach * reach];
    for (let token = 0; token < this.map.count; token++) {
      if (this.hidden.has(this.table.kinds[token])) continue;
      const [x, y] = this.place(token);
      const far = (x - left) ** 2 + (y - top) ** 2;
      if (far <= least) [found, least] = [token, far];
    }
    return found;
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      if (this.size && this.map) this.draw();
    });
  }

  draw() {
    const style = getComputedStyle(this.canvas);
    const names = [...COLOURS, "--paper", "--faint"];
    this.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name)]));
    this.context.fillStyle = this.colours["--paper"];
    this.context.fillRect(0, 0, this.size.width, this.size.height);
    const seen = this.seen();
    const base = this.map.count < 500 ? 3.5 : this.map.count < 4000 ? 2.3 : 1.7;
    this.radius = Math.min(base * (this.scale / this.least) ** 0.35, 6);
    SHAPES.forEach((_, kind) => this.drawKind(kind, seen));
    const chosen = [this.selected, this.hovered].filter((t) => t !== null && t < this.map.count);
    const near = this.selected === null ? [] : this.neighboursOn(this.selected);
    this.drawRings(near, chosen);
    this.drawNames([...new Set([...chosen, ...near, ...this.matches.slice(0, MAX_RINGS)])], seen);
  }

  // Tokens within the canvas, by id.
  seen() {
    const tokens = [];
    for (let token = 0; token < this.map.count; token++) {
      if (this.hidden.has(this.table.kinds[token])) continue;
      const [x, y] = this.place(token);
      if (x > -9 && y > -9 && x < this.size.width + 9 && y < this.size.height + 9) tokens.push(token);
    }
    return tokens;
  }

  neighboursOn(token) {
    return neighboursOf(this.table, token).map((n) => n.token).filter((t) => t < this.map.count);
  }

  drawKind(kind, seen) {
    const context = this.context;
    const special = kind === SHAPES.length - 1;
    const mine = seen.filter((token) => this.table.kinds[token] === kind);
    context.globalAlpha = special ? 0.95 : 0.65;
    context.fillStyle = this.colours[COLOURS[kind]];
    for (let first = 0; first < mine.length; first += AT_ONCE) {
      context.beginPath();
      for (const token of mine.slice(first, first + AT_ONCE)) {
        trace(context, kind, ...this.place(token), this.radius * (special ? 1.4 : 1));
      }
      context.fill();
    }
    context.globalAlpha = 1;
  }

  drawRings(near, chosen) {
    const context = this.context;
    context.strokeStyle = this.colours["--faint"];
    context.lineWidth = 1;
    context.beginPath();
    for (const token of near) {
      context.moveTo(...this.place(this.selected));
      context.lineTo(...this.place(token));
    }
    if (this.selected < this.map.count) context.stroke();
    const ring = (tokens, colour, width, more) => {
      context.beginPath();
      for (const token of tokens) trace(context, 0, ...this.place(token), this.radius + more);
      context.strokeStyle = this.colours[colour];
      context.lineWidth = width;
      context.stroke();
    };
    const found = this.matches.slice(0, MAX_RINGS);
    ring(found.filter((token) => token < this.map.count), "--faint", 1.5, 3);
    ring(near, "--ink", 1.5, 3);
    ring(chosen, "--ink", 3, 5);
  }

  // Names of the first tokens wherever no other name stands; those that must have one come first.
  drawNames(first, seen) {
    const most = Math.round((this.size.width * this.size.height) / PIXELS_OF_NAME);
    const named = new Set(first);
    const rest = seen.slice(0, CANDIDATES).filter((token) => !named.has(token));
    const taken = [];
    this.context.textBaseline = "middle";
    this.context.lineJoin = "round";
    for (const token of [...first, ...rest]) {
      if (taken.length >= most && !named.has(token)) break;
      if (token < this.map.count) this.drawName(token, named.has(token), taken);
    }
  }

  drawName(token, marked, taken) {
    const context = this.context;
    context.font = `${marked ? "bold " : ""}${FONT_SIZE}px system-ui, sans-serif`;
    const width = this.widthOf(token, marked);
    const [x, y] = this.place(token);
    const off = this.radius + (marked ? 8 : 3);
    for (const left of [x + off, x - off - width]) {
      const box = [left - 2, y - FONT_SIZE / 2 - 2, left + width + 2, y + FONT_SIZE / 2 + 2];
      if (box[0] < 0 || box[1] < 0 || box[2] > this.size.width || box[3] > this.size.height) continue;
      if (taken.some((t) => t[0] < box[2] && box[0] < t[2] && t[1] < box[3] && box[1] < t[3])) continue;
      taken.push(box);
      context.strokeStyle = this.colours["--paper"];
      context.lineWidth = 3;
      context.strokeText(this.table.pieces[token], left, y);
      context.fillStyle = this.colours["--ink"];
      context.fillText(this.table.pieces[token], left, y);
      return;
    }
  }

  widthOf(token, marked) {
    const key = 2 * token + marked;
    if (!this.widths.has(key)) {
      this.widths.set(key, this.context.measureText(this.table.pieces[token]).width);
    }
    return this.widths.get(key);
  }
}
