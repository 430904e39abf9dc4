"use strict";
// A text token by token, each as blue as it is probable, and the bars of what may stand there.

/** Tokens as the text that they write, bytes and all. */
function joinTokens(tokens) {
  const bytes = tokens.filter((token) => token !== END_OF_SENTENCE).flatMap((token) => {
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    return byte ? [parseInt(byte[1], 16)] : [...new TextEncoder().encode(token)];
  });
  const text = new TextDecoder().decode(Uint8Array.from(bytes));
  return text.replaceAll(WORD_MARK, " ").replace(/^ /, "");
}

/** A token's name without the mark that begins a word. */
function bare(token) {
  return visible(token).replace(WORD_MARK, "") || "␣";
}

/** A log-probability as a percentage. */
function percent(logProb) {
  const share = 100 * Math.exp(logProb);
  if (share < 0.001) return "<0.001%";
  return share < 1 ? `${share.toPrecision(2)}%` : `${share.toFixed(1)}%`;
}

function signed(number) {
  return number.toFixed(2).replace("-", "\u2212");
}

/** Replaces what is in a place; the focus stays on the button of the same number. */
function renew(place, ...children) {
  const at = [...place.querySelectorAll("button")].indexOf(document.activeElement);
  place.replaceChildren(...children);
  const buttons = place.querySelectorAll("button");
  if (at >= 0) buttons[Math.min(at, buttons.length - 1)]?.focus();
}

/** Lets arrows move among the buttons of a row, of which one can be reached by Tab. */
function moveByArrows(place, onMove = () => {}) {
  place.addEventListener("keydown", (event) => {
    const all = [...place.querySelectorAll("button:not([hidden])")];
    const at = all.indexOf(event.target);
    const ahead = getComputedStyle(place).direction === "rtl" ? -1 : 1;
    const places = { ArrowRight: at + ahead, ArrowLeft: at - ahead, Home: 0, End: -1 };
    if (at < 0 || !(event.key in places)) return;
    event.preventDefault();
    event.stopPropagation(); // the heads have arrows of their own
    const next = all.at(places[event.key] % all.length);
    for (const each of all) each.tabIndex = each === next ? 0 : -1;
    next.focus();
    onMove(next);
  });
}

/** Draws the tokens of a text as buttons; open(i) is called for the one that is chosen. */
function drawTokens(place, entries, position, open) {
  renew(place, ...entries.map(({ token, log_prob: logProb }, i) => {
    const told = percent(logProb);
    const isEnd = token === END_OF_SENTENCE;
    return element(
      "button",
      {
        type: "button", title: told, class: token.startsWith(WORD_MARK) || isEnd ? "begins" : "",
        "aria-label": `${isEnd ? "end" : bare(token)}, ${told}`, "aria-expanded": i === position,
        tabindex: i === (position ?? 0) ? 0 : -1,
        style: `--probable: ${100 * Math.exp(logProb)}%`, on: { click: () => open(i) },
      },
      element("span", isEnd ? { dir: "ltr" } : {}, isEnd ? token : bare(token)),
      element("small", {}, told),
    );
  }));
}

/**
 * Draws what may stand at a place as bars: of each {word, token, log_prob, text}.
 * now: the token that stands there. take(one): called for the bar that is chosen.
 */
function drawBars(place, found, now, take) {
  renew(place, ...found.map((one) => {
    const isEnd = one.token === END_OF_SENTENCE;
    const name = isEnd ? "(end)" : one.word || bare(one.token);
    const part = isEnd || bare(one.token) === name ? [] : [" ", tokenMark(one.token)];
    const bar = element(
      isEnd ? "div" : "button", { // nothing follows an end
        class: "bar", style: `--share: ${100 * Math.exp(one.log_prob)}%`,
        ...(isEnd ? {} : { type: "button", on: { click: () => take(one) } }),
        ...(one.token === now ? { "aria-current": "true" } : {}),
      },
      element("span", {}, element("bdi", {}, name), ...part, one.token === now ? " ✓" : ""),
      element("span", { class: "number" }, percent(one.log_prob)),
      element("small", { dir: "auto" }, one.text ?? ""),
    );
    return element("li", {}, bar);
  }));
}
