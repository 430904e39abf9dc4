"use strict";
// Asks each run while somebody types, drops what is outdated, and shows the answers and a look inside.
{
  const PAUSE = 180; // milliseconds without a key before the runs are asked
  const MAX_BYTES = 500_000; // bytes of a picture that is sent as it is
  const MAX_SIDE = 1024; // pixels of the longer side of one that is made smaller
  const MAX_CLASSES = 5; // shown for each run
  const POLL = 1000; // milliseconds between looks at a server that is starting
  const STRANGE = "unlike the training text: loops, is empty or is cut";
  const CHOOSE = "Choose an answer, or one of these, to look inside.";
  const BARS = 5; // of what else may stand at a place
  const UNSURE = 0.5; // words of a lower probability to be right are underlined
  const BLANK = /^[\p{White_Space}\p{Default_Ignorable_Code_Point}\p{Cc}]*$/u;
  const runs = JSON.parse(byId("served").textContent);
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const cards = [...document.querySelectorAll(".run")].map((card, i) => ({
    run: runs[i],
    card,
    answers: card.querySelector(".answers"),
    told: card.querySelector(".told"),
    tabs: tabs.filter(({ dataset }) => runs[i].operations.includes(dataset.operation)),
    texts: [], // of the answers
  }));
  // What is chosen, besides the fields. The address and the browser's history hold both.
  const first = cards.find((one) => one.tabs.length)?.run.name;
  const FIRST = { run: first, tab: "", answer: 0, position: null, temperature: 1 };
  const NUMBERED = ["answer", "position"]; // in the address these count from one
  const FIELDS = Object.fromEntries(["text", "prefix", "glossary", "best", "tag", "why"].filter(byId).map((name) => {
    const options = [...(byId(name).options ?? [])];
    return [name, (options.find((each) => each.defaultSelected) ?? options[0])?.value ?? ""];
  }));
  const view = { ...FIRST };
  foreign = [...Object.keys(FIRST), ...Object.keys(FIELDS)];
  const nameOf = (tab) => tab.getAttribute("aria-controls");
  const shown = () => cards.find(({ run }) => run.name === view.run); // the card that is looked into
  let asking = new AbortController(); // of what was typed last
  let looking = new AbortController(); // of what is seen inside
  let pause = null;
  let picture = ""; // a data URL

  // A page that holds its model asks nobody.
  const model = byId("model") && new OfflineTranslator(
    JSON.parse(byId("model").textContent), byId("weights").textContent,
  );

  async function post(operation, body, signal) {
    if (model) return model.answer(operation, body, signal);
    const response = await fetch(`/api/${operation}`, {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body), signal,
    });
    const found = await response.json();
    if (!response.ok) throw new Error(found.error);
    return found;
  }

  function fields(run) {
    const tag = byId("tag")?.value;
    return { run: run.name, ...(run.source_tags.includes(tag) ? { source_tag: tag } : {}) };
  }

  const count = (run) => Math.min(Number(byId("best").value), run.max_best);

  /** Tells how many tokens at the end of a text the model does not read; "" if there are none. */
  function unread(count) {
    if (!count) return "";
    return `${grouped(count)} ${count === 1 ? "token" : "tokens"} at the end not read`;
  }

  const grouped = (count) => count.toLocaleString("en");

  const number = (value) => element("span", { class: "number" }, value.toFixed(2));

  /** Buttons that copy a text; none where the browser copies nothing, as without TLS. */
  function copying(text) {
    if (!navigator.clipboard) return [];
    const button = element("button", { type: "button", class: "copy", title: "copy this text" }, "Copy");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    return [button];
  }

  /** An answer's line: a button if there is something to look into. */
  function line(one, i, ...content) {
    if (!one.tabs.length) return element("span", { dir: "auto" }, ...content);
    const click = () => go({ run: one.run.name, answer: i, tab: view.tab || nameOf(one.tabs[0]) });
    const attributes = { type: "button", dir: "auto", class: "answer", on: { click } };
    return element("button", attributes, ...content);
  }

  // -- each task: answers as elements, with their texts

  async function translated(one, text, signal) {
    const prefix = byId("prefix").value;
    const rows = one.run.operations[0] === "translate" ? byId("glossary")?.value ?? "" : "";
    const terms = [...rows.matchAll(/^(.*\S.*?)=(.*\S.*)$/gm)].map(([, ...term]) => term);
    const asked = {
      ...fields(one.run), ...lists(one, text), num_best: count(one.run),
      ...(terms.length ? { glossary: Object.fromEntries(terms) } : {}),
      ...(prefix ? { prefixes: [prefix] } : {}), ...(one.run.is_calibrated ? { confidence: true } : {}),
    };
    const answer = await post(one.run.operations[0], asked, signal);
    const [found] = answer.translations ?? answer.captions;
    const unit = "score: log-probability in nats over the length penalty, summed over segments";
    one.note = [unread(answer.unread?.[0]), unit].filter(Boolean).join(" · ");
    one.texts = found.map((each) => each.text);
    return found.map((each, i) => {
      const strange = each.degenerate ? [element("small", {}, STRANGE)] : [];
      const unsure = findUnsure(each.text, each.words ?? [], prefix.length);
      const isAligned = i === 0 && one.run.operations.includes("align");
      const parts = underlined(each.text || "∅", unsure);
      const shownText = line(one, i, ...(isAligned ? inWords(parts) : parts));
      const source = element("small", { class: "source", dir: "auto" }, ...inWords([text]));
      // The marks have no names for screen readers.
      const told = unsure.map(({ word, percent }) => `${word} ${percent}`).join(", ");
      if (told) shownText.setAttribute("aria-description", `unsure: ${told}`);
      const more = [...copying(each.text), number(each.score), ...strange];
      const item = element("li", {}, shownText, ...more, ...(isAligned ? [source] : []));
      if (isAligned) markLinks(item, [source, shownText], { ...asked, confidence: false });
      return item;
    });
  }

  /** A text of strings and elements, with an element for each word between white space. */
  function inWords(parts) {
    const tokens = parts.flatMap((part) => (typeof part === "string" ? part.split(/(\s+)/) : [part]));
    const result = [];
    let word = null;
    for (const token of tokens.filter((each) => each !== "")) {
      if (typeof token === "string" && BLANK.test(token)) result.push((word = null) ?? token);
      else if (word) word.append(token);
      else result.push(word = element("span", { class: "word" }, token));
    }
    return result;
  }

  /** Marks the word under the pointer, and the words of the other side that align with it. */
  function markLinks(item, sides, asked) {
    const words = sides.map((side) => [...side.querySelectorAll(".word")]);
    let answer = null;
    let current = null;
    const mark = async (word) => {
      current = word;
      words.flat().forEach((each) => each.classList.remove("linked"));
      answer ??= word && post("translate", { ...asked, alignments: true }).catch(() => (answer = null));
      const links = (await answer)?.translations[0][0].links ?? [];
      if (!word || word !== current) return;
      word.classList.add("linked");
      const side = words[0].includes(word) ? 0 : 1;
      const ends = links.filter((link) => words[side][link[side]] === word);
      for (const link of ends) words[1 - side][link[1 - side]]?.classList.add("linked");
    };
    // A finger leaves the word at the end of a tap, before the answer is here.
    item.addEventListener("pointerleave", (event) => event.pointerType === "touch" || mark(null));
    item.addEventListener("pointerover", (event) => mark(event.target.closest(".word")));
  }

  /** The unsure words after the first characters of a text, which are typed, with their places. */
  function findUnsure(text, words, typed) {
    let end = 0;
    const places = words.map(([word, probability]) => {
      const start = text.indexOf(word, end);
      end = start + word.length;
      return { word, start, end, probability, percent: `${Math.round(100 * probability)}%` };
    });
    return places.filter((place) => place.probability < UNSURE && place.end > typed);
  }

  /** A text as strings, and marks of its unsure words. */
  function underlined(text, unsure) {
    let before = 0;
    const parts = unsure.flatMap(({ word, start, end, probability, percent }) => {
      const level = probability < UNSURE / 2 ? "unsure very" : "unsure";
      const gap = text.slice(before, start);
      before = end;
      return [gap, element("u", { class: level, title: `right with a probability of ${percent}` }, word)];
    });
    return [...parts, text.slice(before)];
  }

  async function continued(one, text, signal) {
    const asked = { ...fields(one.run), texts: [text], num_best: count(one.run) };
    const [found] = (await post("generate", asked, signal)).continuations;
    one.texts = found.map((each) => each.text);
    const whole = { ...fields(one.run), texts: [text, ...one.texts] };
    // What is longer than the model reads at once has no log-probability.
    const scores = (await post("score", whole, signal).catch((error) => {
      if (error.name === "AbortError") throw error;
      return { scores: [] };
    })).scores;
    const [own] = scores;
    one.note = own
      ? "score: log-probability of the whole text in nats; "
        + `your text: ${own.log_prob.toFixed(2)} nats over ${own.tokens} tokens`
      : "";
    return found.map((each, i) => {
      const same = each.text.startsWith(text) ? text.length : 0;
      const rest = element("span", { class: "written" }, each.text.slice(same));
      const shownText = line(one, i, each.text.slice(0, same), rest);
      const score = scores[i + 1];
      const numbers = score ? [number(score.log_prob)] : [];
      return element("li", {}, shownText, ...copying(each.text), ...numbers);
    });
  }

  async function classified(one, text, signal) {
    const most = Math.min(one.run.max_best, MAX_CLASSES);
    const asked = { ...fields(one.run), ...lists(one, text), num_best: most };
    const answer = await post("classify", asked, signal);
    const [found] = answer.classes;
    one.note = unread(answer.unread[0]);
    one.texts = found.map(({ label }) => label);
    return found.map(({ label, probability }, i) => {
      const percent = `${(100 * probability).toFixed(1)}%`;
      return element(
        "li", { class: "bar", style: `--share: ${100 * probability}%` },
        line(one, i, label), element("span", { class: "number" }, percent),
      );
    });
  }

  const ASK = { translation: translated, captioning: translated, language_model: continued };

  // -- what is given

  /** What a run gets: the text, the picture, or both. */
  function given(one, text) {
    const values = { text, picture };
    return Object.fromEntries(one.run.inputs.map((name) => [name, values[name]]));
  }

  /** The same as lists, each of which has one. */
  function lists(one, text) {
    const values = Object.entries(given(one, text)).map(([name, value]) => [`${name}s`, [value]]);
    return Object.fromEntries(values);
  }

  /** Whether an answer is written for something else that is given. */
  const hasTarget = (one) => one.run.operations.includes("alternatives");

  const lacks = (one, text) => Object.values(given(one, text)).some((value) => BLANK.test(value));

  async function take(file) {
    if (!file) return;
    try {
      const whole = await read(file);
      picture = file.size > MAX_BYTES ? await shrink(whole) : whole;
      byId("photo-seen").src = picture;
      byId("photo-seen").hidden = false;
      ask();
    } catch {
      for (const one of cards) refuse(one, `this browser cannot open ${file.name} as a picture`);
    }
  }

  function read(file) {
    return new Promise((resolve, reject) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result);
      reader.onerror = reject;
      reader.readAsDataURL(file);
    });
  }

  async function shrink(url) {
    const image = new Image();
    image.src = url;
    await image.decode();
    const scale = Math.min(1, MAX_SIDE / Math.max(image.width, image.height));
    const canvas = element("canvas", {});
    [canvas.width, canvas.height] = [image.width * scale, image.height * scale];
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/jpeg", 0.92);
  }

  // -- asking

  function ask() {
    clearTimeout(pause);
    pause = null;
    asking.abort();
    looking.abort();
    asking = new AbortController();
    const text = byId("text").value;
    const [length, most] = [[...text].length, Number(byId("text").dataset.characters)];
    for (const one of cards) {
      if (lacks(one, text)) empty(one);
      else if (length <= most) askOne(one, text, asking.signal);
      else refuse(one, `the text has ${grouped(length)} characters, more than ${grouped(most)}`);
    }
  }

  function askSoon() {
    clearTimeout(pause);
    Object.assign(view, { answer: 0, position: null });
    pause = setTimeout(() => (remember(false), ask()), PAUSE);
    for (const one of cards) one.card.classList.add("late");
    byId("panel").classList.add("late");
  }

  async function askOne(one, text, signal) {
    const start = performance.now();
    one.card.classList.add("late");
    if (one === shown()) look();
    try {
      one.note = "";
      const answers = await (ASK[one.run.task] ?? classified)(one, text, signal);
      if (signal.aborted) return;
      const time = `${Math.round(performance.now() - start)} ms`;
      renew(one.answers, ...answers);
      one.answers.style.minHeight = `${one.answers.offsetHeight}px`; // what is below stays
      tell(one, [one.note, time].filter(Boolean).join(" · "), false);
      if (one === shown()) look();
    } catch (error) {
      if (signal.aborted) return;
      refuse(one, reasonOf(error));
    }
  }

  function reasonOf(error) {
    return error instanceof TypeError && !model ? "the server does not answer" : error.message;
  }

  function refuse(one, reason) {
    one.answers.replaceChildren();
    one.texts = [];
    tell(one, reason, true);
    if (one === shown()) nothing(reason);
  }

  function tell(one, text, isWrong) {
    one.card.classList.remove("late");
    one.told.classList.toggle("wrong", isWrong);
    one.told.textContent = text;
  }

  function empty(one) {
    one.answers.replaceChildren();
    one.answers.style.minHeight = "";
    one.texts = [];
    tell(one, "", false);
    if (one === shown()) look();
  }

  // -- the panel

  /** Shows the chosen tab of the chosen answer. */
  async function look() {
    looking.abort();
    looking = new AbortController();
    const { signal } = looking;
    const [one, text, panel] = [shown(), byId("text").value, byId("panel")];
    panel.hidden = !one || lacks(one, text);
    byId("clear")?.toggleAttribute("hidden", !byId("prefix").value);
    if (panel.hidden) return;
    for (const tab of tabs) tab.hidden = !one.tabs.includes(tab);
    const open = one.tabs.find((tab) => nameOf(tab) === view.tab) ?? (view.tab && one.tabs[0]);
    view.tab = open ? nameOf(open) : "";
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", tab === open);
      tab.tabIndex = tab === (open || one.tabs[0]) ? 0 : -1;
      if (tab !== open) byId(nameOf(tab)).hidden = true;
    }
    byId("close").hidden = !open;
    panel.classList.toggle("late", Boolean(open));
    byId("panel-told").textContent = open ? "It is being computed." : CHOOSE;
    if (one.card.classList.contains("late")) return; // its answer comes first
    view.answer = Math.max(0, Math.min(view.answer, one.texts.length - 1));
    for (const each of cards) {
      each.answers.querySelectorAll(".answer").forEach((button, i) => {
        button.setAttribute("aria-pressed", Boolean(open) && each === one && i === view.answer);
      });
    }
    if (!open) return;
    if (!one.texts.length) return nothing(one.told.textContent);
    try {
      await SHOW[view.tab](one, text, signal);
      if (signal.aborted) return;
      byId("panel-told").textContent = "";
      panel.classList.remove("late");
    } catch (error) {
      if (!signal.aborted) nothing(reasonOf(error));
    }
  }

  /** Tells why a tab has nothing to show. */
  function nothing(reason) {
    byId("panel").classList.remove("late");
    if (view.tab) byId(view.tab).hidden = true;
    byId("panel-told").textContent = view.tab ? `Nothing to show: ${reason}` : "";
  }

  async function showWords(one, text, signal) {
    const translates = hasTarget(one);
    const written = one.texts[view.answer];
    const asked = { ...fields(one.run), num_best: BARS, temperature: view.temperature };
    const texts = translates ? { ...lists(one, text), targets: [written] } : { texts: [written] };
    const [entries] = (await post("next_tokens", { ...asked, ...texts }, signal)).next_tokens;
    const position = view.position < entries.length ? view.position : null;
    const entry = entries[position];
    const before = entries.slice(0, position ?? 0).map(({ token }) => token);
    let found = entry?.best.map((each) => ({ ...each, prefix: joinTokens([...before, each.token]) }));
    if (entry && translates) {
      const place = { ...given(one, text), target: written, position };
      found = (await post("alternatives", { ...asked, ...place }, signal)).alternatives;
    }
    const layers = entry ? await readLayers(one, text, written, position, signal) : [];
    if (signal.aborted) return;
    byId("words").hidden = false;
    const open = (i) => go({ position: i === position ? null : i });
    drawTokens(byId("pieces"), entries, position, open);
    byId("instead").hidden = !entry;
    if (!entry) return;
    byId("instead-title").replaceChildren("Instead of ", tokenMark(entry.token));
    byId("layers").replaceChildren(...layers);
    byId("entropy").textContent =
      `Entropy: ${entry.entropy.toFixed(2)} nats. Choose one: what is before it stays, and the rest follows.`;
    drawBars(byId("bars"), found, entry.token, ({ prefix }) => {
      go({ answer: 0 }, translates ? { prefix } : { text: prefix });
    });
  }

  /** The most probable token at a place after each layer: the logit lens. */
  async function readLayers(one, text, written, position, signal) {
    if (!one.run.operations.includes("lens")) return [];
    const pair = hasTarget(one) ? { text, target: written } : { text: written };
    const asked = { ...fields(one.run), ...pair, num_best: 1 };
    const { best, log_probs: logProbs } = (await post("lens", asked, signal)).lens.decoder;
    return best.flatMap((tokens, layer) => [
      layer ? `, layer ${layer} ` : "After each layer: embedding ",
      tokenMark(tokens[position][0]), ` ${percent(logProbs[layer][position][0])}`,
    ]);
  }

  async function showBeam(one, text, signal) {
    const prefix = byId("prefix").value;
    const asked = { ...fields(one.run), ...given(one, text), ...(prefix ? { prefix } : {}) };
    const found = await post("beam", asked, signal);
    if (signal.aborted) return;
    byId("beam").hidden = false;
    const search = readBeam(found, one.texts[0]);
    const tree = drawBeam(byId("tree"), search, (told) => (byId("node").textContent = told));
    explain = async () => {
      const why = byId("why").value;
      const target = { ...lists(one, text), targets: [why], num_best: 1 };
      const asks = !BLANK.test(why) && why.startsWith(prefix);
      const [sentence, path] = asks
        ? await post("next_tokens", { ...fields(one.run), ...target }, signal).then(
            ({ next_tokens: [entries] }) => whyNot(search, why, entries),
            (error) => [reasonOf(error), []],
          )
        : [BLANK.test(why) ? "" : `It does not begin with “${prefix}”.`, []];
      if (signal.aborted || why !== byId("why").value) return;
      byId("because").textContent = sentence;
      tree.mark(path);
    };
    await explain();
  }

  async function showHeads(one, text, signal) {
    const target = hasTarget(one) ? { target: one.texts[view.answer] } : {};
    const asked = { ...fields(one.run), ...given(one, text), ...target };
    const found = await post("attention", asked, signal);
    if (signal.aborted) return;
    byId("heads").hidden = false;
    explorer.open(found);
  }

  const off = new Set(); // names of ablated heads

  async function showOff(one, text, signal) {
    const heads = one.run.heads;
    for (const name of off) if (!heads.includes(name)) off.delete(name);
    const toggle = (name) => {
      if (!off.delete(name)) off.add(name);
      look();
    };
    drawSwitches(byId("switches"), heads, off, toggle);
    byId("off").hidden = false;
    // All heads are named, so that one compiled program does for any of them.
    const changes = { "*.head.*.output": 1, ...Object.fromEntries([...off].map((name) => [name, 0])) };
    const asked = { ...fields(one.run), text: given(one, text).text, changes };
    const [best] = (await post("intervene", asked, signal)).intervene;
    if (signal.aborted) return;
    const names = off.size === 1 ? `without ${[...off]}` : `without ${off.size} heads`;
    const told = markChanges(best.text ?? best.label, one.texts[0] ?? "");
    byId("without").replaceChildren(off.size ? `${names}: ` : "with all heads: ", ...told);
  }

  const SHOW = { words: showWords, beam: showBeam, heads: showHeads, off: showOff };
  let explain = () => {};

  // -- the address and the browser's history

  /** Writes what is seen into the address: as an entry of the history, or into the present one. */
  function remember(isNew) {
    const parts = new URLSearchParams(location.hash.slice(1));
    for (const [name, value] of Object.entries({ ...FIRST, ...FIELDS })) {
      const now = name in FIELDS ? byId(name).value : view[name];
      if (now === value) parts.delete(name);
      else parts.set(name, NUMBERED.includes(name) ? now + 1 : now);
    }
    try {
      history[isNew ? "pushState" : "replaceState"](null, "", `#${parts}`);
    } catch {
      // A browser limits how many.
    }
  }

  /** A deliberate change, of what is seen or of the fields: an entry of the history. */
  function go(changes, typed = {}) {
    if (pause) remember(false); // what was just typed
    Object.assign(view, changes);
    for (const [name, value] of Object.entries(typed)) byId(name).value = value;
    remember(true);
    if (pause || Object.keys(typed).length) ask();
    else look();
    grow();
  }

  /** Shows what the address says. */
  function recall() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const values = () => JSON.stringify(Object.keys(FIELDS).map((name) => byId(name).value));
    const before = values();
    for (const [name, value] of Object.entries(FIELDS)) {
      byId(name).value = parts.get(name) ?? value;
      if (byId(name).selectedIndex === -1) byId(name).value = value;
    }
    for (const [name, value] of Object.entries(FIRST)) {
      const [said, isNumber] = [parts.get(name) ?? "", NUMBERED.includes(name)];
      if (isNumber) view[name] = /^[1-9]\d{0,4}$/.test(said) ? said - 1 : value;
      else view[name] = said || value;
    }
    if (!shown()?.tabs.length) view.run = FIRST.run;
    view.temperature = Math.min(Math.max(Number(view.temperature) || 1, 0.25), 4);
    byId("heat").value = Math.log2(view.temperature);
    tellHeat();
    grow();
    if (before !== values()) ask();
    else look();
  }

  function tellHeat() {
    byId("heat-told").textContent = view.temperature;
    byId("heat").setAttribute("aria-valuetext", view.temperature);
  }

  // -- the server

  async function watch() {
    try {
      const found = await (await fetch("/api/runs")).json();
      const part = `${found.compiled} of ${found.programs} programs are compiled`;
      byId("state").textContent =
        found.status === "ready" ? "" : `The server is starting: ${part}. First answers take longer.`;
      if (found.status === "ready") return;
    } catch {
      byId("state").textContent = "The server does not answer.";
    }
    setTimeout(watch, POLL);
  }

  /** Makes the field as high as its text. */
  function grow() {
    const { style } = byId("text");
    style.height = "auto";
    style.height = `${byId("text").scrollHeight + 2}px`; // with its border
  }

  for (const one of cards.filter(({ run }) => run.languages?.every(Boolean))) {
    const names = new Intl.DisplayNames("en", { type: "language" });
    const [from, into] = one.run.languages.map((code) => names.of(code));
    one.card.querySelector(".direction").textContent = `, ${from} → ${into}`;
  }
  byId("text").addEventListener("input", grow);
  for (const name of ["text", "prefix", "glossary"]) byId(name)?.addEventListener("input", askSoon);
  for (const name of ["best", "tag"]) {
    byId(name)?.addEventListener("change", () => go({ answer: 0 }, { [name]: byId(name).value }));
  }
  byId("clear")?.addEventListener("click", () => {
    go({ answer: 0 }, { prefix: "" });
    byId("prefix").focus();
  });
  for (const tab of tabs) tab.addEventListener("click", () => go({ tab: nameOf(tab) }));
  if (tabs.length) moveByArrows(tabs[0].parentElement, (tab) => tab.click());
  byId("close").addEventListener("click", () => {
    go({ tab: "" });
    tabs.find((tab) => tab.tabIndex === 0)?.focus();
  });
  moveByArrows(byId("pieces"));
  byId("percents").addEventListener("change", ({ target }) =>
    byId("pieces").classList.toggle("numbers", target.checked));
  let soon = null;
  const later = (act) => {
    clearTimeout(soon);
    soon = setTimeout(act, PAUSE);
  };
  byId("heat").addEventListener("input", () => {
    view.temperature = Number((2 ** byId("heat").value).toFixed(2));
    tellHeat();
    later(() => (remember(false), look()));
  });
  byId("why").addEventListener("input", () => later(() => explain()));
  byId("runs").addEventListener("copy", (event) => { // without underlines
    event.clipboardData.setData("text/plain", getSelection().toString());
    event.preventDefault();
  });
  window.addEventListener("popstate", recall);
  window.addEventListener("resize", () => {
    for (const { answers } of cards) answers.style.minHeight = "";
  });
  byId("photo")?.addEventListener("change", () => take(byId("photo").files[0]));
  if (byId("photo")) {
    document.addEventListener("dragover", (event) => {
      if (event.dataTransfer.types.includes("Files")) event.preventDefault();
    });
    document.addEventListener("drop", (event) => {
      const [file] = event.dataTransfer.files;
      if (file) event.preventDefault(); // text is dropped into the field
      take(file);
    });
    document.addEventListener("paste", (event) => take(event.clipboardData.files[0]));
  }
  if (!model) watch();
  if (location.hash.length > 1) recall();
  else if (byId("text").value) { // what the browser kept of an earlier visit
    grow();
    ask();
  }
}
