"use strict";
// Asks each run while somebody types, drops what is outdated, and shows the answers and the heads.
{
  const PAUSE = 180; // milliseconds without a key before the runs are asked
  const MAX_BYTES = 500_000; // bytes of a picture that is sent as it is
  const MAX_SIDE = 1024; // pixels of the longer side of one that is made smaller
  const MAX_CLASSES = 5; // shown for each run
  const POLL = 1000; // milliseconds between looks at a server that is starting
  const BLANK = /^[\p{White_Space}\p{Default_Ignorable_Code_Point}\p{Cc}]*$/u;
  const runs = JSON.parse(byId("served").textContent);
  const cards = [...document.querySelectorAll(".run")].map((card, i) => ({
    run: runs[i],
    card,
    answers: card.querySelector(".answers"),
    told: card.querySelector(".told"),
    heads: card.querySelector("button.heads"),
    chosen: 0, // the answer whose heads are shown
    texts: [], // of the answers
  }));
  let asking = new AbortController(); // of what was typed last
  let shown = null; // the card whose heads are shown
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

  // -- each task: answers as elements, with their texts

  async function translated(one, text, signal) {
    const asked = { ...fields(one.run), texts: [text], num_best: count(one.run) };
    const answer = await post("translate", asked, signal);
    const [found] = answer.translations;
    const unit = "score: log-probability in nats over the length penalty, summed over segments";
    one.note = [unread(answer.unread[0]), unit].filter(Boolean).join(" · ");
    one.texts = found.map((each) => each.text);
    return found.map((each, i) => {
      const button = element(
        "button",
        { type: "button", dir: "auto", on: { click: () => chooseAnswer(one, i) } },
        each.text || "∅",
      );
      const line = one.heads ? button : element("span", { dir: "auto" }, each.text);
      return element("li", {}, line, ...copying(each.text), number(each.score));
    });
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
      const line = element("span", { dir: "auto" }, each.text.slice(0, same), rest);
      const score = scores[i + 1];
      const numbers = score ? [number(score.log_prob)] : [];
      return element("li", {}, line, ...copying(each.text), ...numbers);
    });
  }

  async function classified(one, text, signal) {
    const lists = Object.entries(given(one, text)).map(([name, value]) => [`${name}s`, [value]]);
    const most = Math.min(one.run.max_best, MAX_CLASSES);
    const asked = { ...fields(one.run), ...Object.fromEntries(lists), num_best: most };
    const answer = await post("classify", asked, signal);
    const [found] = answer.classes;
    one.note = unread(answer.unread[0]);
    return found.map(({ label, probability }) => {
      const percent = `${(100 * probability).toFixed(1)}%`;
      return element(
        "li", { class: "bar", style: `--share: ${100 * probability}%` },
        element("span", { dir: "auto" }, label), element("span", { class: "number" }, percent),
      );
    });
  }

  const ASK = { translation: translated, language_model: continued };

  // -- what is given

  /** What a run gets: the text, the picture, or both. */
  function given(one, text) {
    const values = { text, picture };
    return Object.fromEntries(one.run.inputs.map((name) => [name, values[name]]));
  }

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
    asking.abort();
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
    pause = setTimeout(ask, PAUSE);
    for (const one of cards) one.card.classList.add("late");
    if (shown) awaitHeads();
  }

  async function askOne(one, text, signal) {
    const start = performance.now();
    one.card.classList.add("late");
    if (one === shown) awaitHeads();
    try {
      one.note = "";
      const answers = await (ASK[one.run.task] ?? classified)(one, text, signal);
      if (signal.aborted) return;
      const time = `${Math.round(performance.now() - start)} ms`;
      one.chosen = 0;
      one.answers.replaceChildren(...answers);
      tell(one, [one.note, time].filter(Boolean).join(" · "), false);
      if (one === shown) await showHeads();
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
    if (one === shown) noHeads(reason);
  }

  function tell(one, text, isWrong) {
    one.card.classList.remove("late");
    one.told.classList.toggle("wrong", isWrong);
    one.told.textContent = text;
  }

  function empty(one) {
    one.answers.replaceChildren();
    one.texts = [];
    tell(one, "", false);
    if (one === shown) byId("heads").hidden = true;
  }

  // -- the heads

  function chooseAnswer(one, i) {
    one.chosen = i;
    open(one);
  }

  /** Shows a run's heads, or none. */
  function open(one) {
    shown = one;
    for (const each of cards) {
      if (!each.heads) continue;
      each.heads.setAttribute("aria-pressed", each === shown);
      each.heads.textContent = each === shown ? "Hide the heads" : "Show the heads";
    }
    if (shown) showHeads();
    else byId("heads").hidden = true;
  }

  /** Marks the heads that are on the screen as outdated. */
  function awaitHeads() {
    byId("heads").hidden = false;
    byId("heads-told").textContent = "The heads of this text are being computed.";
    byId("maps").classList.add("late");
  }

  function noHeads(reason) {
    byId("heads-told").textContent = `No heads: ${reason}`;
    byId("maps").hidden = true;
  }

  async function showHeads() {
    const { signal } = asking;
    const [one, text] = [shown, byId("text").value];
    if (lacks(one, text)) return;
    awaitHeads();
    if (one.card.classList.contains("late")) return; // its answer comes first
    const { chosen } = one;
    const target = one.run.task === "translation" ? { target: one.texts[chosen] } : {};
    one.answers.querySelectorAll("button:not(.copy)").forEach((button, i) =>
      button.setAttribute("aria-pressed", i === one.chosen),
    );
    try {
      const found = await post("attention", { ...fields(one.run), ...given(one, text), ...target }, signal);
      if (signal.aborted || one !== shown || chosen !== one.chosen) return;
      byId("heads-told").textContent = "";
      byId("maps").classList.remove("late");
      byId("maps").hidden = false;
      explorer.open(found);
    } catch (error) {
      if (!signal.aborted && one === shown) noHeads(reasonOf(error));
    }
  }

  // -- the server

  async function look() {
    try {
      const found = await (await fetch("/api/runs")).json();
      const part = `${found.compiled} of ${found.programs} programs are compiled`;
      byId("state").textContent =
        found.status === "ready" ? "" : `The server is starting: ${part}. First answers take longer.`;
      if (found.status === "ready") return;
    } catch {
      byId("state").textContent = "The server does not answer.";
    }
    setTimeout(look, POLL);
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
  byId("text").addEventListener("input", askSoon);
  for (const name of ["best", "tag"]) byId(name)?.addEventListener("change", ask);
  for (const one of cards) {
    one.heads?.addEventListener("click", () => open(one === shown ? null : one));
  }
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
  if (!model) look();
  if (byId("text").value) { // what the browser kept of an earlier visit
    grow();
    ask();
  }
}
