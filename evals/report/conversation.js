// One episode as a readable conversation: the question, each call with its results, the answer
// next to the gold answer, and the verdicts, rubric and reward.
// All data becomes text nodes, so that mails and answers can't inject markup.

const SHOWN_CHARS = 2000; // of one text, before "Show all"
// Maps, not objects: a model may call a tool "constructor".
const TOOLS = new Map([
  ["search_emails", "search"], ["read_email", "read"], ["return_final_answer", "answer"],
]);
const FILTER_NAMES = new Map([
  ["from_addr", "from"], ["to_addr", "to"], ["sent_after", "after"], ["sent_before", "before"],
]);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

const NOTHING = "–"; // for a missing value
const grouped = (number) => number.toLocaleString("en-US");
const fixed = (number, digits) => (typeof number === "number" ? number.toFixed(digits) : NOTHING);
const signed = (number) =>
  typeof number === "number" ? `${number > 0 ? "+" : ""}${Number(number.toFixed(3))}` : String(number);
const dollars = (cost) =>
  cost === null ? NOTHING : `$${cost === 0 || cost >= 0.1 ? cost.toFixed(2) : cost.toPrecision(2)}`;
const className = (outcome) => `v-pill v-is-${outcome.replaceAll(" ", "-")}`;

// A text block; a long one is cut until "Show all" is pressed.
function prose(text, kind = "") {
  const block = el("div", { class: `v-prose ${kind}`, dir: "auto" }, text.slice(0, SHOWN_CHARS));
  if (text.length <= SHOWN_CHARS) return block;
  const more = el("button", { type: "button", class: "v-more" },
    `Show all ${grouped(text.length)} characters`);
  more.addEventListener("click", () => {
    block.textContent = text;
    more.remove();
  });
  return el("div", {}, block, more);
}

function badge(text, kind) {
  return el("span", { class: `v-badge v-${kind}` }, text);
}

function stepName(episode) {
  const parts = [];
  if (episode.step !== null) parts.push(`step ${episode.step}`);
  if (episode.repeat) parts.push(`repeat ${episode.repeat + 1}`);
  return parts.join(", ");
}

// Draws one episode of the page's data.
class Conversation {
  constructor(data, episode) {
    this.data = data;
    this.episode = episode;
    this.question = data.questions[episode.question];
    this.gold = new Set(episode.gold.map((mail) => mail.id));
    this.seen = new Map(); // by handle and by message id: the head of the mail
    this.read = new Set(); // message ids
    for (const result of this.results()) {
      for (const hit of result.hits || []) {
        this.note(hit.handle, data.shared[hit.head]);
        if (hit.whole) this.read.add(data.shared[hit.head].id);
      }
      if ("mail" in result) {
        this.note(result.handle, data.shared[result.mail]);
        this.read.add(data.shared[result.mail].id);
      }
    }
  }

  results() {
    return this.episode.turns.flatMap((turn) => turn.calls.flatMap((call) => call.results));
  }

  note(handle, head) {
    this.seen.set(handle, head);
    this.seen.set(head.id, head);
  }

  // The whole article; `beside` another, without what both share.
  article(beside) {
    const { episode } = this;
    const where = [episode.run, stepName(episode)].filter(Boolean).join(", ");
    return el("article", { class: "v-episode", "data-episode": episode.id },
      el("header", { class: "v-who" },
        el("strong", {}, episode.model), el("span", { class: className(episode.outcome) },
          episode.outcome),
        el("span", { class: "v-muted" }, where)),
      beside ? this.answered()
        : [this.asked(), el("div", { class: "v-answers" }, this.goldAnswer(), this.answered())],
      this.goldMails(), this.figures(), this.turns(), this.facts());
  }

  asked() {
    const { question, kind, difficulty, inbox_address, query_date } = this.question;
    const day = query_date && `on ${query_date}`;
    const about = [kind, difficulty, `inbox ${inbox_address}`, day].filter(Boolean);
    return el("div", {}, el("h4", {}, "Question"), prose(question, "v-question"),
      el("p", { class: "v-muted" }, about.join(" · ")));
  }

  goldAnswer() {
    const { answer, answerable } = this.question;
    const gold = answerable === false ? "(the mail does not tell: abstaining is right)" : answer;
    return el("div", {}, el("h4", {}, "Gold answer"), prose(gold ?? "(not known)", "v-answer"));
  }

  answered() {
    const { episode } = this;
    const none = episode.outcome === "failed" ? "(none: the episode failed)" : "(no answer)";
    const verdicts = episode.verdicts.map((verdict) => {
      const says = { true: "right", false: "wrong", null: "unjudged" }[verdict.correct];
      const unsure = verdict.unsure ? ", unsure" : "";
      const grounded = { true: ", grounded", false: ", not grounded" }[verdict.grounded] || "";
      return el("li", {}, el("span", { class: className(says) }, says + unsure + grounded), " ",
        el("span", { class: "v-muted" }, `${verdict.judge}: `),
        el("span", { dir: "auto" }, verdict.reason || "no reason given"));
    });
    return el("div", { class: "v-given" },
      el("h4", {}, "Given answer", episode.abstained ? badge("abstained", "note") : null),
      prose(episode.answer ?? none, `v-answer v-edge-${episode.outcome.replaceAll(" ", "-")}`),
      verdicts.length ? el("ul", { class: "v-verdicts" }, verdicts) : null,
      episode.error
        ? el("p", { class: "v-error" }, `${episode.error.kind}: ${episode.error.message}`) : null);
  }

  goldMails() {
    if (!this.episode.gold.length) return null;
    const rows = this.episode.gold.map((mail) =>
      el("li", {}, ["found", "read", "cited"].map((fact) => badge(
        mail[fact] ? `✓ ${fact}` : `✗ not ${fact}`, mail[fact] ? "good" : "bad")),
        el("span", { dir: "auto" }, this.seen.get(mail.id)?.subject || ""),
        el("code", {}, mail.id)));
    return el("div", {}, el("h4", {}, "Gold mails"), el("ul", { class: "v-gold" }, rows));
  }

  figures() {
    const { facts, usage, cost, seconds, reward, components, retries, where } = this.episode;
    const tokens = `${grouped(usage.prompt_tokens || 0)} in, ${grouped(usage.completion_tokens || 0)} out`;
    const rows = [
      ["Ended at", where],
      ["Turns", `${facts.turns ?? NOTHING} of ${facts.max_turns ?? NOTHING}`],
      ["Effort", String(facts.effort ?? NOTHING)],
      ["Tokens", tokens],
      ["Cost", dollars(cost)],
      ["Seconds", `${fixed(seconds.total, 1)} (model ${fixed(seconds.model, 1)}, ` +
        `tools ${fixed(seconds.tools, 2)})`],
      retries ? ["Retries", String(retries)] : null,
      reward === null ? null : ["Reward", signed(reward)],
    ].filter(Boolean);
    const parts = Object.entries(components).map(([name, value]) =>
      el("li", { class: value < 0 ? "v-minus" : value > 0 ? "v-plus" : null },
        `${name} `, el("b", {}, signed(value))));
    return el("div", { class: "v-figures" },
      el("dl", {}, rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
      parts.length ? el("ul", { class: "v-components", "aria-label": "Reward" }, parts) : null);
  }

  turns() {
    const { episode, data } = this;
    const system = data.shared[episode.system];
    const asked = data.shared[episode.asked];
    return el("div", { class: "v-turns" },
      system ? el("details", {}, el("summary", {}, "System prompt"), prose(system)) : null,
      asked && asked !== this.question.question
        ? el("div", { class: "v-turn" }, el("h5", {}, "Asked"), prose(asked)) : null,
      episode.turns.map((turn, index) => this.turn(turn, index)));
  }

  turn(turn, index) {
    const seconds = this.episode.call_seconds[index];
    return el("section", { class: "v-turn" },
      el("h5", {}, `Turn ${index + 1}`, typeof seconds === "number"
        ? el("span", { class: "v-muted" }, ` ${fixed(seconds, 1)} s`) : null),
      turn.says === null ? null : prose(this.data.shared[turn.says], "v-says"),
      turn.calls.map((call) => el("div", { class: "v-call" }, this.call(call),
        call.results.map((result) => this.result(result)))),
      turn.notes.map((result) => this.result(result)));
  }

  call({ tool, arguments: given }) {
    const known = TOOLS.get(tool);
    const name = el("span", { class: `v-tool v-tool-${known || "other"}` }, known || tool);
    const line = el("div", { class: "v-said", dir: "auto" }, name, " ");
    if (typeof given === "string") {
      line.append(el("code", {}, given.slice(0, SHOWN_CHARS)));
      return line;
    }
    if (known === "answer") {
      line.append(el("b", {}, given.answer === null ? "(no answer)" : String(given.answer ?? "")));
      for (const source of [given.sources || []].flat()) line.append(" ", this.source(source));
      return line;
    }
    const words = [given.keywords ?? given.message_id ?? []].flat();
    line.append(...words.flatMap((word) => [el("b", {}, word), " "]));
    for (const [argument, value] of Object.entries(given)) {
      if (argument === "keywords" || argument === "message_id" || value === null) continue;
      const label = FILTER_NAMES.get(argument) || argument;
      line.append(el("span", { class: "v-filter" }, `${label} ${value}`), " ");
    }
    return line;
  }

  // A mail that an answer cites, and whether the model saw it.
  source(cited) {
    const head = this.seen.get(cited.trim());
    const id = head ? head.id : cited.trim();
    return el("span", { class: "v-source" }, cited,
      head ? el("span", { class: "v-muted" }, ` ${head.subject}`) : null,
      this.gold.has(id) ? badge("gold, cited", "good") : null,
      head ? null : badge("never found", "bad"),
      head && !this.read.has(id) ? badge("never read", "bad") : null);
  }

  result(result) {
    if (result.hits) return this.hits(result.hits);
    if ("mail" in result) return this.mail(result);
    const kind = ["error", "note", "text"].find((name) => name in result);
    return prose(this.data.shared[result[kind]], `v-${kind}`);
  }

  hits(hits) {
    if (!hits.length) return el("p", { class: "v-note" }, "no mail found");
    return el("ol", { class: "v-hits" }, hits.map((hit) => {
      const head = this.data.shared[hit.head];
      const gold = this.gold.has(head.id);
      return el("li", { class: gold ? "v-is-gold" : null },
        el("code", {}, hit.handle), el("time", {}, head.date),
        el("span", { class: "v-from", dir: "auto" }, head.from || "(no sender)"),
        el("span", { class: "v-subject", dir: "auto" }, head.subject || "(no subject)"),
        gold ? badge(hit.whole ? "gold, read" : "gold, found", "good") : null,
        el("span", { class: "v-snippet", dir: "auto" }, this.data.shared[hit.snippet],
          hit.missing?.length
            ? el("span", { class: "v-lacks" }, `lacks ${hit.missing.join(", ")}`) : null));
    }));
  }

  mail(result) {
    const mail = this.data.shared[result.mail];
    const gold = this.gold.has(mail.id);
    const rows = ["from", "to", "cc", "bcc", "date"].filter((name) => mail[name]?.length);
    return el("div", { class: gold ? "v-mail v-is-gold" : "v-mail" },
      el("div", { class: "v-mail-head" },
        el("div", { class: "v-subject", dir: "auto" }, mail.subject || "(no subject)", " ",
          gold ? badge("gold, read", "good") : null),
        rows.map((name) => el("div", {}, el("span", { class: "v-muted" }, `${name} `),
          el("span", { dir: "auto" }, [mail[name]].flat().join(", ")))),
        el("code", {}, result.handle === mail.id ? mail.id : `${result.handle} ${mail.id}`)),
      prose(mail.body, "v-body"));
  }

  facts() {
    const { facts, usage, policy, id, started } = this.episode;
    const all = { ...facts, ...usage, ...policy, started, episode: id };
    return el("details", { class: "v-facts" },
      el("summary", {}, "All facts"),
      el("dl", {}, Object.entries(all).map(([name, value]) => el("div", {},
        el("dt", {}, name), el("dd", {}, typeof value === "string" ? value : JSON.stringify(value))))));
  }
}
