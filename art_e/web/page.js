// The page of art-e web. All that mail and models say becomes text nodes: nothing of it is markup.
"use strict";

const get = (id) => document.getElementById(id);
const state = { inbox: "", talk: "", running: null, shown: 0 };
const narrow = matchMedia("(max-width: 62rem)");

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

// A text with the places in `marks` marked. Places count characters as Python does.
function marked(text, marks) {
  const characters = Array.from(text);
  const parts = [];
  let at = 0;
  for (const [start, end] of marks) {
    parts.push(characters.slice(at, start).join(""));
    parts.push(el("mark", {}, characters.slice(start, end).join("")));
    at = end;
  }
  return [...parts, characters.slice(at).join("")];
}

const lost = (error) => (error.name === "AbortError" ? error : new Error("art-e web has ended; start it again"));

async function post(path, fields, signal) {
  let response;
  try {
    response = await fetch(path, { method: "POST", body: JSON.stringify(fields), signal });
  } catch (error) {
    throw lost(error);
  }
  if (!response.ok) throw new Error((await response.text()).trim());
  return response;
}

async function call(name, fields = {}) {
  const given = await (await post(`call/${name}`, fields)).json();
  if (given.error) throw new Error(given.error);
  return given;
}

const complain = (error = { message: "" }) => { get("error").textContent = error.message; };
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const mode = () => document.querySelector("[name=mode]:checked").value;

// ---- Cards: the sources of an answer, and mails found.

function card(mail, number, open, more = "") {
  const quote = mail.snippet === undefined
    ? mail.sentence && el("span", { class: "quote sentence", dir: "auto" }, el("mark", {}, mail.sentence))
    : el("span", { class: "quote", dir: "auto" }, marked(mail.snippet, mail.marks));
  const button = el("button", { type: "button", class: "card", onclick: () => open(button) },
    el("span", { class: "number" }, `${number}`),
    el("span", { class: "subject", dir: "auto" }, mail.subject || "(no subject)"),
    el("span", { class: "date" }, mail.date.slice(0, 10)),
    el("span", { class: "sender", dir: "auto" }, (mail.from || "(no sender)") + more),
    quote || null);
  return el("li", {}, button);
}

const cards = () => {
  const inside = mode() === "search" ? get("found") : get("talk").lastElementChild;
  return inside ? [...inside.querySelectorAll(".card")] : [];
};

function step(by) {
  const all = cards();
  const current = document.querySelector(".card[aria-current]");
  const at = all.indexOf(all.includes(document.activeElement) ? document.activeElement : current);
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  if (!next) return;
  next.focus();
  if (document.body.classList.contains("reading")) next.click();
}

// ---- A mail, beside the talk or over it.

async function openMail(from, fields, whole = false) {
  complain();
  let given;
  try {
    given = await call("mail", { ...fields, whole });
  } catch (error) {
    return complain(error);
  }
  document.querySelector(".card[aria-current]")?.removeAttribute("aria-current");
  from.setAttribute("aria-current", "true");
  const pane = get("mail");
  const again = (all) => () => openMail(from, fields, all);
  const opened = given.mails.findIndex((each) => each.message_id === given.opened);
  const mail = given.mails[opened];
  const bar = el("div", { class: "bar" },
    el("span", { class: "title quiet", dir: "auto" }, `${mail.date.slice(0, 10)}  ${mail.from}`),
    given.size > 1 && el("button", { type: "button", class: "thread", onclick: again(!whole) },
      whole ? "This mail alone" : `Whole conversation (${given.size})`) || null,
    el("button", { type: "button", class: "close", onclick: closeMail }, "Close"));
  pane.replaceChildren(bar, ...given.mails.map((each) => mailSection(each, fields)));
  pane.hidden = false;
  document.body.classList.add("reading");
  covers();
  pane.focus({ preventScroll: true });
  const section = pane.querySelectorAll("section")[opened];
  const mark = section.querySelector("mark");
  pane.scrollTop = 0;
  if (mark) mark.scrollIntoView({ block: "center" });
  else if (whole) section.scrollIntoView();
}

function mailSection(mail, { inbox, junk = false }) {
  const link = (name, place) => el("a", {
    download: "",
    href: `attached?${new URLSearchParams({ inbox, message_id: mail.message_id, number: place + 1, junk })}`,
  }, name);
  const lines = [
    ["From", mail.from], ["To", mail.to.join(", ")], ["Cc", mail.cc.join(", ")],
    ["Bcc", mail.bcc.join(", ")], ["Date", mail.date.replace("T", " ")],
    ["Labels", (mail.labels || []).join(", ")], ["Attached", mail.attached.map(link)],
  ].filter(([, value]) => value.length);
  const columns = / {3,}\S.* {3,}\S/.test(mail.body) ? "columns" : "";
  const body = el("div", { class: `body ${columns}`, dir: "auto" }, marked(mail.body, mail.marks));
  const unfold = () => { body.replaceChildren(...marked(mail.full.body, mail.full.marks)); button.remove(); };
  const button = mail.full ? el("button", { type: "button", onclick: unfold }, "Show quoted text") : "";
  return el("section", {},
    el("h2", { dir: "auto" }, mail.subject || "(no subject)"),
    el("dl", {}, lines.flatMap(([name, value]) => [el("dt", {}, name), el("dd", { dir: "auto" }, ...[value].flat())])),
    body, button);
}

function closeMail() {
  get("mail").hidden = true;
  document.body.classList.remove("reading");
  covers();
  const from = document.querySelector(".card[aria-current]");
  from?.removeAttribute("aria-current");
  from?.focus();
}

// On a phone the mail covers the page, whose fields can't be reached then.
function covers() {
  const over = narrow.matches && !get("mail").hidden;
  for (const each of [document.querySelector("header"), document.querySelector("main")]) each.inert = over;
}

// ---- Questions.

function newEntry(question) {
  const entry = el("article", {}, el("h2", { dir: "auto" }, question));
  get("talk").append(entry);
  return entry;
}

async function ask(question) {
  const { inbox, talk } = state;
  const stop = new AbortController();
  const steps = el("ol", { class: "steps" });
  const arriving = el("p", { class: "arriving", dir: "auto", "aria-hidden": "true" });
  const entry = newEntry(question);
  entry.append(steps, arriving);
  entry.classList.add("running");
  entry.scrollIntoView({ block: "start" });
  running(stop);
  try {
    const response = await post("ask", { question, inbox, talk }, stop.signal);
    for await (const event of lines(response)) {
      arriving.textContent = event.arriving || "";
      if (event.error) throw new Error(event.error);
      if (event.talk && stop === state.running) at(event.talk);
      if (event.answer) showAnswer(entry, steps, event.answer, inbox);
      else if (event.step) steps.append(el("li", {}, event.step));
    }
    if (!entry.querySelector(".after")) throw lost({});
  } catch (error) {
    if (error.name === "AbortError") showAnswer(entry, steps, { kind: "stopped" }, inbox);
    else entry.append(box("failed", "No answer", error.message));
  }
  arriving.remove();
  entry.classList.remove("running");
  if (stop === state.running) running(null);
}

async function* lines(response) {
  const decoder = new TextDecoder();
  let rest = "";
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read().catch((error) => { throw lost(error); });
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

function running(stop) {
  state.running = stop;
  showMode();
}

// What a question gave: each kind has a look of its own.
function look(answer) {
  if (answer.kind === "stopped" || answer.kind === "answer") return answer.kind;
  if (answer.model === "offline") return "passages";
  return answer.without_source ? "unsourced" : answer.abstained ? "abstained" : "failed";
}

function box(name, title, text, again = null) {
  return el("div", { class: `box ${name}`, role: name === "failed" ? "alert" : null },
    el("p", { class: "title" }, title), el("p", { dir: "auto" }, text),
    again && el("button", { type: "button", onclick: again }, "Try again"));
}

function showAnswer(entry, steps, answer, inbox) {
  const kind = look(answer);
  const { sources = [], took = "" } = answer;
  const again = () => { if (!state.running) { entry.remove(); ask(entry.firstChild.textContent); } };
  const reason = capital(`${answer.reason || " "}.`);
  // A model that abstains in more words may say why.
  const said = answer.answer || "";
  const text = kind === "abstained" && said.split(/\s+/).length < 6 ? "I don\u2019t know" : said;
  if (kind === "stopped") entry.append(box(kind, "Stopped", "No answer was kept.", again));
  if (kind === "failed") entry.append(box(kind, "No answer", reason, answer.lasting ? null : again));
  if (kind === "unsourced") entry.append(box(kind, "The model said, without a source", answer.without_source));
  if (kind === "answer" || kind === "abstained") entry.append(
    el("p", { class: `answer ${kind} ${text.length > 240 ? "long" : ""}`, dir: "auto" }, text));
  if (kind === "abstained") entry.append(el("p", { class: "quiet why" }, reason));
  const labels = kind === "answer" ? ["Sources", "No source was given."]
    : kind === "passages" ? ["Best passages; no model was asked", "No passage fits; try other words."] : ["Best passages", ""];
  const label = labels[sources.length ? 0 : 1];
  entry.append(...(label ? [el("p", { class: "label" }, label)] : []),
    el("ol", { class: "cards" }, sources.map((mail, place) => card(mail, place + 1, (from) =>
      openMail(from, { inbox, message_id: mail.message_id, sentence: mail.sentence })))),
    el("div", { class: "after" },
      steps ? el("details", {}, el("summary", {}, took || "Steps"), steps) : el("span", { class: "quiet" }, took),
      ...(kind === "answer" || kind === "abstained" ? ratings(answer.run, answer.rated) : [])));
}

function ratings(run, rated) {
  const place = el("span", { role: "status", class: "quiet" });
  const buttons = ["good", "bad"].map((name) => el("button", { type: "button", class: name, onclick: () =>
    name === "good" ? rate("good", "") : ask() }, name === "good" ? "Good" : "Bad"));
  const right = el("input", { "aria-label": "What is right?", placeholder: "What is right? (may stay empty)", maxlength: 10000 });
  const form = el("form", { onsubmit: (event) => { event.preventDefault(); rate("bad", right.value); } },
    right, el("button", { class: "main" }, "Save"));
  form.hidden = true;
  const ask = () => { form.hidden = false; right.focus(); };
  const show = (rating, what) => {
    for (const each of buttons) each.setAttribute("aria-pressed", each.className === rating);
    place.textContent = rating === "good" || !what.trim() ? `Kept: ${rating}` : `Kept: bad, ${what.trim()} is right`;
  };
  const rate = async (rating, what) => {
    try {
      await call("rate", { run, rating, right: what });
      form.hidden = true;
      show(rating, what);
    } catch (error) {
      place.textContent = error.message;
    }
  };
  if (rated) show(rated.rating, rated.right);
  return [...buttons, place, form];
}

// ---- Earlier conversations: the server keeps them, the address names the open one.

function at(talk) {
  state.talk = talk;
  if (location.hash.slice(1) !== talk) history.pushState(null, "", talk ? `#${talk}` : location.pathname);
}

async function openTalk(talk) {
  forget(talk);
  if (!talk) return;
  try {
    const { entries, ...given } = await call("talk", { talk });
    if (state.talk !== talk) return; // another one was opened
    showInbox(given);
    const isRetried = (entry, next) => next?.question === entry.question && ["stopped", "failed"].includes(look(entry));
    entries.filter((entry, place) => !isRetried(entry, entries[place + 1]))
      .forEach((entry) => showAnswer(newEntry(entry.question), null, entry, given.inbox));
    showMode();
    get("talk").lastElementChild.scrollIntoView({ block: "start" });
  } catch (error) {
    at("");
    complain(error);
  }
}

async function showTalks() {
  try {
    const { talks } = await call("talks", { inbox: state.inbox });
    get("talks").replaceChildren(...talks.map((each, place) => el("li", {},
      el("button", { type: "button", class: "card", onclick: () => { get("history").close(); openTalk(each.talk); } },
        el("span", { class: "number" }, `${place + 1}`),
        el("span", { class: "subject", dir: "auto" }, each.title),
        el("span", { class: "sender" }, new Date(each.at).toLocaleString("sv-SE").slice(0, 16) + "  \u00b7  "
          + `${each.questions} ${each.questions === 1 ? "question" : "questions"}${each.talk === state.talk ? ", open" : ""}`)))));
    get("none").hidden = talks.length > 0;
    get("history").showModal();
  } catch (error) {
    complain(error);
  }
}

// ---- Search.

async function search(query) {
  const number = ++state.shown;
  const { inbox } = state;
  const { hits, words, junk } = await call("search", { inbox, query });
  if (number !== state.shown) return; // a later search has begun
  const more = (hit) => [[hit.thread, "mails"], [hit.copies, "copies"]]
    .filter(([count]) => count > 1).map(([count, things]) => `  \u00b7  ${count} ${things}`).join("");
  get("found").replaceChildren(
    el("p", { class: "label" }, hits.length ? `${hits.length === 30 ? "The best " : ""}${hits.length} ${hits.length === 1 ? "mail" : "mails"}` : "No mail matches; try other words or fewer filters."),
    el("ol", { class: "cards" }, hits.map((hit, place) => card(hit, place + 1, (from) =>
      openMail(from, { inbox, message_id: hit.message_id, words, junk }), more(hit)))));
  showMode();
  scrollTo(0, 0);
}

// ---- The box, the bar and the keys.

function showMode() {
  const searching = mode() === "search";
  get("talk").hidden = searching;
  get("found").hidden = !searching;
  const empty = !(searching ? get("found") : get("talk")).hasChildNodes();
  document.body.classList.toggle("empty", empty);
  const stops = !searching && state.running !== null;
  get("go").textContent = searching ? "Search" : stops ? "Stop" : "Ask";
  get("line").setAttribute("aria-label", searching ? "Search" : "Question");
  get("line").placeholder = searching ? "lease from:ann after:2001-03" : state.talk ? "Ask a follow-up" : "Ask about your mail";
  get("greeting").textContent = searching ? "What are you looking for?" : "What do you want to know?";
}

function choose(name) {
  document.querySelector(`[name=mode][value=${name}]`).checked = true;
  complain();
  showMode();
  get("line").focus();
  get("line").select();
}

async function submit() {
  const line = get("line").value.trim();
  complain();
  if (mode() === "ask" && state.running) return state.running.abort();
  if (!line) return;
  try {
    if (mode() === "search") return await search(line);
    get("line").value = "";
    const asked = ask(line);
    showMode();
    await asked;
  } catch (error) {
    complain(error);
  }
}

function forget(talk = "") {
  const before = state.running;
  state.running = null;
  before?.abort();
  at(talk);
  get("talk").replaceChildren();
  get("found").replaceChildren();
  if (!get("mail").hidden) closeMail();
  choose("ask");
}

function showInbox(given) {
  state.inbox = get("inbox").value = given.inbox;
  const until = given.as_of ? ` up to ${given.as_of}` : "";
  get("about").textContent = `${given.inbox}, ${given.mails.toLocaleString("en-US")} mails${until}`;
}

async function changeInbox() {
  complain();
  try {
    showInbox(await call("inbox", { inbox: get("inbox").value }));
    forget();
  } catch (error) {
    get("inbox").value = state.inbox;
    complain(error);
  }
}

const KEYS = {
  "/": () => choose("search"),
  a: () => choose("ask"),
  j: () => step(1),
  k: () => step(-1),
  t: () => get("mail").querySelector(".thread")?.click(),
  h: showTalks,
  "?": () => get("keys").showModal(),
};

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = event.target.closest?.("input:not([type=radio]), select, textarea");
  const { key } = event;
  if (key === "Escape") {
    if (!get("mail").hidden) closeMail();
    else if (field) field.blur();
  } else if (event.target === get("line") && key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    // A running question is stopped by its button alone.
    if (mode() === "search" || !state.running) submit();
  } else if (field) {
    return;
  } else if (Object.hasOwn(KEYS, key)) {
    event.preventDefault();
    KEYS[key]();
  } else if (/^[1-9]$/.test(key)) {
    cards()[key - 1]?.click();
  } else if ((key === "ArrowDown" || key === "ArrowUp") && event.target.matches?.(".card")) {
    event.preventDefault();
    step(key === "ArrowDown" ? 1 : -1);
  }
}

async function start() {
  document.addEventListener("keydown", pressed);
  narrow.addEventListener("change", covers);
  get("box").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  // By mouse the box is next; by the arrow keys the other choice may be.
  for (const each of document.getElementsByName("mode")) {
    each.addEventListener("change", () => { complain(); showMode(); });
    each.parentNode.addEventListener("click", (event) => event.detail && get("line").focus());
  }
  get("new").addEventListener("click", () => forget());
  get("earlier").addEventListener("click", showTalks);
  addEventListener("popstate", () => openTalk(location.hash.slice(1)));
  get("help").addEventListener("click", KEYS["?"]);
  get("inbox").addEventListener("change", changeInbox);
  get("inbox").addEventListener("focus", () => get("inbox").select());
  showMode();
  try {
    const given = await call("start");
    showInbox(given);
    get("notice").textContent = capital(given.notice);
    get("addresses").append(...given.addresses.map((each) => el("option", { value: each })));
    get("operators").textContent = given.operators.map((each) => `${each}:`).join(" ");
    if (location.hash.length > 1) await openTalk(location.hash.slice(1));
  } catch (error) {
    complain(error);
  }
}

start();
