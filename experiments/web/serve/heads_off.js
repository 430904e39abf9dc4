"use strict";
// The answer of a model with ablated heads.

/**
 * Draws a switch for each head into an element, a row per attention of a layer.
 * names: of the heads' outputs, such as encoder.1.self.head.2.output. off: a set of names.
 * toggle(name): called for a switch.
 */
function drawSwitches(place, names, off, toggle) {
  const rows = new Map();
  for (const name of names) {
    const [attention, head] = name.replace(".output", "").split(".head.");
    const button = element("button", {
      type: "button", class: "small", "aria-pressed": String(off.has(name)),
      "aria-label": `${attention}, head ${head}: ${off.has(name) ? "off" : "on"}`,
      on: { click: () => toggle(name) },
    }, head);
    if (!rows.has(attention)) rows.set(attention, []);
    rows.get(attention).push(button);
  }
  const lines = [...rows].map(([attention, buttons]) =>
    element("div", { class: "line" }, element("span", { class: "faint" }, attention), ...buttons));
  renew(place, ...lines);
}

/** The words of a text, in bold where another text does not have them. */
function markChanges(text, other) {
  const before = other.split(" ");
  return text.split(" ").flatMap((word) => {
    const at = before.indexOf(word);
    if (at >= 0) before.splice(at, 1);
    return [at >= 0 ? word : element("strong", {}, word), " "];
  });
}
