// The page of art-e web. Text of mails and models becomes text nodes, never markup.
"use strict";

const get = (id) => document.getElementById(id);
const state = { inbox: "", conversation: "", running: null, searches: 0 };
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

// A text with the spans in `marks` highlighted. Offsets count code points, as in Python.
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
  const result = await (await post(`call/${name}`, fields)).json();
  if (result.error) throw new Error(result.error);
  return result;
}

const complain = (error = { message: "" }) => { get("error").textContent = error.message; };
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const mode = () => document.querySelector("[name=mode]:checked").value;

// ---- Cards: the sources of an answer, and search results.

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
  const inside = mode() === "search" ? get("results") : get("conversation").lastElementChild;
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

// ---- A mail, next to the conversation or over it.

async function openMail(from, fields, whole = false) {
  complain();
  let result;
  try {
    result = await call("mail", { ...fields, whole });
  } catch (error) {
    return complain(error);
  }
  document.querySelector(".card[aria-current]")?.removeAttribute("aria-current");
  from.setAttribute("aria-current", "true");
  const pane = get("mail");
  const again = (all) => () => openMail(from, fields, all);
  const opened = result.mails.findIndex((mail) => mail.message_id === result.opened);
  const mail = result.mails[opened];
  const bar = el("div", { class: "bar" },
    el("span", { class: "title quiet", dir: "auto" }, `${mail.date.slice(0, 10)}  ${mail.from}`),
    result.size > 1 && el("button", { type: "button", class: "thread", onclick: again(!whole) },
      whole ? "This mail alone" : `Whole conversation (${result.size})`) || null,
    el("button", { type: "button", class: "close", onclick: closeMail }, "Close"));
  pane.replaceChildren(bar, ...result.mails.map((mail) => mailSection(mail, fields)));
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

// On a phone the mail covers the page, so that its fields must not get the focus.
function covers() {
  const over = narrow.matches && !get("mail").hidden;
  for (const part of [document.querySelector("header"), document.querySelector("main")]) part.inert = over;
}

// ---- Questions.

function newEntry(question) {
  const entry = el("article", {}, el("h2", { dir: "auto" }, question));
  get("conversation").append(entry);
  return entry;
}

async function ask(question) {
  const { inbox, conversation } = state;
  const stop = new AbortController();
  const steps = el("ol", { class: "steps" });
  const arriving = el("p", { class: "arriving", dir: "auto", "aria-hidden": "true" });
  const entry = newEntry(question);
  entry.append(steps, arriving);
  entry.classList.add("running");
  entry.scrollIntoView({ block: "start" });
  running(stop);
  try {
    const response = await post("ask", { question, inbox, conversation }, stop.signal);
    for await (const event of lines(response)) {
      arriving.textContent = event.arriving || "";
      if (event.error) throw new Error(event.error);
      if (event.conversation && stop === state.running) at(event.conversation);
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

// The kind of a result, each with its own look.
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
  // A longer "I don't know" is shown, because it may say why.
  const full = answer.answer || "";
  const text = kind === "abstained" && full.split(/\s+/).length < 6 ? "I don\u2019t know" : full;
  if (kind === "stopped") entry.append(box(kind, "Stopped", "No answer was kept.", again));
  if (kind === "failed") entry.append(box(kind, "No answer", reason, answer.permanent ? null : again));
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
    for (const button of buttons) button.setAttribute("aria-pressed", button.className === rating);
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

// ---- Earlier conversations: the server stores them, the URL has the id of the open one.

function at(conversation) {
  state.conversation = conversation;
  if (location.hash.slice(1) !== conversation) history.pushState(null, "", conversation ? `#${conversation}` : location.pathname);
}

async function openConversation(conversation) {
  forget(conversation);
  if (!conversation) return;
  try {
    const { entries, ...opened } = await call("conversation", { conversation });
    if (state.conversation !== conversation) return; // another one was opened
    showInbox(opened);
    const isRetried = (entry, next) => next?.question === entry.question && ["stopped", "failed"].includes(look(entry));
    entries.filter((entry, place) => !isRetried(entry, entries[place + 1]))
      .forEach((entry) => showAnswer(newEntry(entry.question), null, entry, opened.inbox));
    showMode();
    get("conversation").lastElementChild.scrollIntoView({ block: "start" });
  } catch (error) {
    at("");
    complain(error);
  }
}

async function showConversations() {
  try {
    const { conversations } = await call("conversations", { inbox: state.inbox });
    get("conversations").replaceChildren(...conversations.map((row, place) => el("li", {},
      el("button", { type: "button", class: "card", onclick: () => { get("history").close(); openConversation(row.conversation); } },
        el("span", { class: "number" }, `${place + 1}`),
        el("span", { class: "subject", dir: "auto" }, row.title),
        el("span", { class: "sender" }, new Date(row.at).toLocaleString("sv-SE").slice(0, 16) + "  \u00b7  "
          + `${row.questions} ${row.questions === 1 ? "question" : "questions"}${row.conversation === state.conversation ? ", open" : ""}`)))));
    get("none").hidden = conversations.length > 0;
    get("history").showModal();
  } catch (error) {
    complain(error);
  }
}

// ---- Search.

async function search(query) {
  const number = ++state.searches;
  const { inbox } = state;
  const { hits, words, junk } = await call("search", { inbox, query });
  if (number !== state.searches) return; // a later search was started
  const more = (hit) => [[hit.thread, "mails"], [hit.copies, "copies"]]
    .filter(([count]) => count > 1).map(([count, things]) => `  \u00b7  ${count} ${things}`).join("");
  get("results").replaceChildren(
    el("p", { class: "label" }, hits.length ? `${hits.length === 30 ? "The best " : ""}${hits.length} ${hits.length === 1 ? "mail" : "mails"}` : "No mail matches; try other words or fewer filters."),
    el("ol", { class: "cards" }, hits.map((hit, place) => card(hit, place + 1, (from) =>
      openMail(from, { inbox, message_id: hit.message_id, words, junk }), more(hit)))));
  showMode();
  scrollTo(0, 0);
}

// ---- The box, the bar and the keys.

function showMode() {
  const searching = mode() === "search";
  get("conversation").hidden = searching;
  get("results").hidden = !searching;
  const empty = !(searching ? get("results") : get("conversation")).hasChildNodes();
  document.body.classList.toggle("empty", empty);
  const stops = !searching && state.running !== null;
  get("go").textContent = searching ? "Search" : stops ? "Stop" : "Ask";
  get("line").setAttribute("aria-label", searching ? "Search" : "Question");
  get("line").placeholder = searching ? "lease from:ann after:2001-03" : state.conversation ? "Ask a follow-up" : "Ask about your mail";
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
    const answer = ask(line);
    showMode();
    await answer;
  } catch (error) {
    complain(error);
  }
}

function forget(conversation = "") {
  const before = state.running;
  state.running = null;
  before?.abort();
  at(conversation);
  get("conversation").replaceChildren();
  get("results").replaceChildren();
  if (!get("mail").hidden) closeMail();
  choose("ask");
}

function showInbox(inbox) {
  state.inbox = get("inbox").value = inbox.inbox;
  const until = inbox.as_of ? ` up to ${inbox.as_of}` : "";
  get("about").textContent = `${inbox.inbox}, ${inbox.mails.toLocaleString("en-US")} mails${until}`;
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
  h: showConversations,
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
    // Only the button stops a running question.
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
  // After a mouse click the text box gets the focus; the arrow keys stay on the choices.
  for (const choice of document.getElementsByName("mode")) {
    choice.addEventListener("change", () => { complain(); showMode(); });
    choice.parentNode.addEventListener("click", (event) => event.detail && get("line").focus());
  }
  get("new").addEventListener("click", () => forget());
  get("earlier").addEventListener("click", showConversations);
  addEventListener("popstate", () => openConversation(location.hash.slice(1)));
  get("help").addEventListener("click", KEYS["?"]);
  get("inbox").addEventListener("change", changeInbox);
  get("inbox").addEventListener("focus", () => get("inbox").select());
  showMode();
  try {
    const page = await call("start");
    showInbox(page);
    get("notice").textContent = capital(page.notice);
    get("addresses").append(...page.addresses.map((address) => el("option", { value: address })));
    get("operators").textContent = page.operators.map((name) => `${name}:`).join(" ");
    if (location.hash.length > 1) await openConversation(location.hash.slice(1));
  } catch (error) {
    complain(error);
  }
}

start();
