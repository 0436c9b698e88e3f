// The list of episodes with its filters, and the dialog that shows one episode, or two side by
// side. The address holds the whole view, so that links and the back button work.

const PAGE_ROWS = 50;
const OPENING = ["episode", "with", "page"]; // these don't change the list

class Viewer {
  constructor(data) {
    this.data = data;
    this.finder = new Finder(data);
    this.byId = new Map(data.episodes.map((episode, position) => [episode.id, position]));
    this.columns = columnsOf(data);
    this.list = document.getElementById("viewer-list");
    this.form = document.getElementById("viewer-filters");
    this.detail = document.getElementById("viewer-detail");
    this.compare = document.getElementById("viewer-compare");
    this.view = {};
    this.found = [];
    this.drawHead();
    this.fillFilters();
    this.listen();
    this.follow();
  }

  // Show the view in the address.
  follow() {
    const view = parseLink(location.hash);
    if (view === null) return; // another part of the page
    this.view = this.pairOf(view);
    for (const field of this.form.elements) if (field.name) field.value = this.view[field.name] || "";
    this.find();
    this.draw();
    const viewer = document.getElementById("viewer");
    const { top, bottom } = viewer.getBoundingClientRect();
    if (location.hash && (top > innerHeight || bottom < 0)) viewer.scrollIntoView();
  }

  // #question=ID&models=a,b names the first episode of each model on that question; if both
  // are the same model, the second comes from another run.
  pairOf(view) {
    if (!view.models || !view.question) return view;
    const { question, models, ...rest } = view;
    const chosen = [];
    for (const model of models) {
      const same = chosen.find((episode) => episode.model === model);
      const episode = this.data.episodes.find((each) =>
        each.model === model && each.run !== same?.run &&
        this.data.questions[each.question].id === question);
      if (episode) chosen.push(episode);
    }
    const [first, second] = chosen;
    return first ? { ...rest, episode: first.id, with: second?.id } : { question, ...rest };
  }

  // Change the view, as a new history entry or in place of the current one.
  go(changes, replace = false) {
    this.view = { ...this.view, ...changes };
    if (Object.keys(changes).some((name) => !OPENING.includes(name))) this.find();
    history[replace ? "replaceState" : "pushState"](null, "", linkTo(this.view));
    this.draw();
  }

  find() {
    this.found = this.finder.list(this.view, this.columns);
    const open = this.found.indexOf(this.byId.get(this.view.episode));
    if (open >= 0) this.view.page = pageName(Math.floor(open / PAGE_ROWS));
  }

  draw() {
    this.drawRows();
    this.drawDetail();
  }

  get page() {
    const last = Math.max(0, Math.ceil(this.found.length / PAGE_ROWS) - 1);
    return Math.min(Math.max((Number(this.view.page) || 1) - 1, 0), last);
  }

  drawHead() {
    const cells = this.columns.map((column) => {
      const button = el("button", { type: "button" }, column.title);
      button.addEventListener("click", () => {
        const down = this.view.sort === column.name;
        this.go({ sort: down ? `-${column.name}` : column.name, page: "" }, true);
      });
      return el("th", { scope: "col", "data-name": column.name, class: column.kind }, button);
    });
    this.list.tHead.replaceChildren(el("tr", {}, cells));
  }

  drawRows() {
    const { episodes } = this.data;
    const first = this.page * PAGE_ROWS;
    const shown = this.found.slice(first, first + PAGE_ROWS);
    this.list.tBodies[0].replaceChildren(...shown.map((position) => this.row(episodes[position])));
    for (const cell of this.list.tHead.rows[0].cells) {
      const { name } = cell.dataset;
      const down = this.view.sort === `-${name}`;
      const way = down ? "descending" : this.view.sort === name ? "ascending" : "none";
      cell.setAttribute("aria-sort", way);
    }
    this.drawCount();
    const pages = document.getElementById("viewer-pages");
    const last = Math.ceil(this.found.length / PAGE_ROWS);
    pages.hidden = last < 2;
    pages.querySelector("span").textContent =
      `${grouped(first + 1)} to ${grouped(first + shown.length)} of ${grouped(this.found.length)}`;
    pages.querySelector("[data-page='-1']").disabled = this.page === 0;
    pages.querySelector("[data-page='1']").disabled = this.page + 1 >= last;
  }

  row(episode) {
    const cells = this.columns.map((column) => {
      const text = column.show(episode);
      const kind = text === NOTHING ? `${column.kind} v-none` : column.kind;
      const attributes = { class: kind, "data-label": column.title };
      if (column.name === "question") {
        const href = linkTo({ ...this.view, episode: episode.id, with: "" });
        return el("td", attributes, el("a", { href, dir: "auto" }, text));
      }
      if (column.name !== "outcome") return el("td", attributes, text);
      return el("td", attributes, el("span", { class: className(episode.outcome) }, text));
    });
    return el("tr", { "data-episode": episode.id }, cells);
  }

  drawCount() {
    const { episodes, outcomes } = this.data;
    const counts = new Map();
    for (const position of this.found) {
      const { outcome } = episodes[position];
      counts.set(outcome, (counts.get(outcome) || 0) + 1);
    }
    const parts = outcomes.filter((outcome) => counts.has(outcome)).map((outcome) =>
      `${grouped(counts.get(outcome))} ${outcome}`);
    const sum = `${grouped(this.found.length)} of ${grouped(episodes.length)} episodes`;
    const count = document.getElementById("viewer-count");
    count.replaceChildren(parts.length ? `${sum}: ${parts.join(", ")}` : sum);
    if (this.view.question) {
      const clear = el("button", { type: "button", class: "v-chip" },
        `question ${this.view.question} ×`);
      clear.addEventListener("click", () => this.go({ question: "", page: "" }));
      count.append(" ", clear);
    }
    if (this.view.episode && !this.byId.has(this.view.episode)) {
      count.append(" ", el("b", {}, `There is no episode ${this.view.episode} in this report.`));
    }
  }

  drawDetail() {
    const episode = this.data.episodes[this.byId.get(this.view.episode)];
    if (!episode) {
      if (this.detail.open) this.detail.close();
      return;
    }
    const second = this.data.episodes[this.byId.get(this.view.with)];
    const main = new Conversation(this.data, episode);
    const other = second ? new Conversation(this.data, second) : null;
    const body = this.detail.querySelector(".v-shown");
    body.replaceChildren(...(other
      ? [main.asked(), main.goldAnswer(), el("div", { class: "v-beside" }, main.article(true), other.article(true))]
      : [main.article(false)]));
    const at = this.found.indexOf(this.byId.get(episode.id));
    const title = document.getElementById("viewer-detail-title");
    title.textContent = at < 0 ? "Episode" : `Episode ${grouped(at + 1)} of ${grouped(this.found.length)}`;
    for (const button of this.detail.querySelectorAll("[data-go]")) {
      button.disabled = this.found[at + Number(button.dataset.go)] === undefined;
    }
    this.fillCompare(episode, second);
    if (!this.detail.open) {
      this.detail.showModal();
      title.focus();
    }
    body.scrollTop = 0;
  }

  // The other episodes on the current question.
  fillCompare(episode, second) {
    const id = this.data.questions[episode.question].id;
    const others = this.data.episodes.filter((each) =>
      each !== episode && this.data.questions[each.question].id === id);
    const manyRuns = new Set(others.map((each) => each.run)).size > 1;
    const options = others.map((each) => {
      const parts = [each.model, stepName(each), manyRuns ? each.run : "", each.outcome];
      return option(each.id, parts.filter(Boolean).join(", "));
    });
    this.compare.replaceChildren(option("", others.length ? "nothing" : "no other episode"), ...options);
    this.compare.value = second ? second.id : "";
    this.compare.disabled = !others.length;
  }

  fillFilters() {
    const { episodes, questions, outcomes, wheres } = this.data;
    const values = {
      model: episodes.map((episode) => episode.model),
      outcome: outcomes.filter((outcome) => episodes.some((each) => each.outcome === outcome)),
      where: wheres.filter((where) => episodes.some((each) => each.where === where)),
      kind: questions.map((question) => question.kind ?? "unlabelled"),
      run: episodes.map((episode) => episode.run),
      step: episodes.map((each) => each.step).filter((step) => step !== null).sort((a, b) => a - b),
    };
    for (const [name, all] of Object.entries(values)) {
      const select = this.form.elements[name];
      const distinct = [...new Set(all.map(String))];
      select.replaceChildren(option("", "all"), ...distinct.map((value) => option(value, value)));
      select.parentElement.hidden = distinct.length < 2;
    }
    const rewarded = episodes.some((episode) => episode.reward !== null);
    this.form.querySelector(".v-range").hidden = !rewarded;
  }

  // Go to the next or previous episode: open it if one is open, or else focus its row.
  move(by) {
    const open = this.view.episode && this.detail.open;
    const focused = document.activeElement?.closest("#viewer-list tr[data-episode]");
    const id = open ? this.view.episode : focused?.dataset.episode;
    const at = this.found.indexOf(this.byId.get(id));
    const next = id === undefined ? this.page * PAGE_ROWS : at + by;
    if (this.found[next] === undefined) return;
    const episode = this.data.episodes[this.found[next]];
    const page = pageName(Math.floor(next / PAGE_ROWS));
    if (open) this.go({ episode: episode.id, with: "", page }, true);
    else {
      if (page !== pageName(this.page)) this.go({ page }, true);
      this.focusRow(episode.id);
    }
  }

  focusRow(id) {
    for (const row of this.list.tBodies[0].rows) {
      if (row.dataset.episode === id) row.querySelector("a").focus();
    }
  }

  close() {
    const id = this.view.episode;
    this.go({ episode: "", with: "" });
    this.focusRow(id);
  }

  listen() {
    window.addEventListener("hashchange", () => this.follow());
    document.addEventListener("keydown", (event) => this.press(event));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", (event) =>
      this.go({ [event.target.name]: event.target.value, page: "" }, true));
    this.form.addEventListener("reset", () => {
      this.go({ ...Object.fromEntries(FILTERS.map((name) => [name, ""])), page: "" });
    });
    this.list.tBodies[0].addEventListener("click", (event) => {
      if (event.target.closest("a") || String(getSelection())) return;
      event.target.closest("tr")?.querySelector("a").click();
    });
    document.getElementById("viewer-pages").addEventListener("click", (event) => {
      const by = Number(event.target.dataset.page);
      if (by) this.go({ page: pageName(this.page + by) });
    });
    this.compare.addEventListener("change", () => this.go({ with: this.compare.value }));
    this.detail.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.close();
    });
    this.detail.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button?.dataset.go) this.move(Number(button.dataset.go));
      else if (button && "close" in button.dataset) this.close();
    });
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape" && event.target.closest("#viewer-filters")) event.target.blur();
      return;
    }
    // Outside the list and the dialog, arrows scroll the page.
    const inList = event.target.closest("#viewer-list tbody");
    const ways = new Map([["j", 1], ["k", -1]]);
    if (inList) ways.set("ArrowDown", 1).set("ArrowUp", -1);
    if (this.detail.open) ways.set("ArrowRight", 1).set("ArrowLeft", -1);
    if (ways.has(event.key)) this.move(ways.get(event.key));
    else if (event.key === "/") {
      if (this.detail.open) this.close();
      document.getElementById("viewer-search").focus();
    } else return;
    event.preventDefault();
  }
}

const pageName = (page) => (page > 0 ? String(page + 1) : "");
const option = (value, text) => el("option", { value }, text);

// The columns for which this report's episodes have values.
function columnsOf(data) {
  const { episodes, questions, outcomes } = data;
  const of = (episode) => questions[episode.question];
  const differ = (get) => new Set(episodes.map(get)).size > 1;
  const number = (name, title, value, show) => ({ name, title, value, show, kind: "v-number" });
  const text = (name, title, value, kind) =>
    ({ name, title, value, kind, show: (each) => value(each) ?? NOTHING });
  const count = (value) => (each) => (value(each) === null ? NOTHING : grouped(value(each)));
  const plainNumber = (name, title, value) => number(name, title, value, count(value));
  const tokens = ({ usage }) => (usage.prompt_tokens ?? 0) + (usage.completion_tokens ?? 0);
  return [
    text("question", "Question", (each) => of(each).question, "v-asks"),
    text("model", "Model", (each) => each.model, "v-name"),
    { ...text("outcome", "Verdict", (each) => each.outcome, "v-label"),
      value: (each) => outcomes.indexOf(each.outcome) },
    text("kind", "Kind", (each) => of(each).kind, "v-label"),
    differ((each) => each.run) && text("run", "Run", (each) => each.run, "v-name"),
    differ((each) => each.step) && plainNumber("step", "Step", (each) => each.step),
    differ((each) => each.repeat) && plainNumber("repeat", "Repeat", (each) => each.repeat + 1),
    differ((each) => each.reward) && number("reward", "Reward", (each) => each.reward,
      (each) => fixed(each.reward, 2)),
    plainNumber("turns", "Turns", (each) => each.facts.turns ?? null),
    plainNumber("effort", "Effort", (each) => each.facts.effort ?? null),
    plainNumber("tokens", "Tokens", tokens),
    number("cost", "Cost", (each) => each.cost, (each) => dollars(each.cost)),
    number("seconds", "Seconds", (each) => each.seconds.total ?? null,
      (each) => fixed(each.seconds.total, 1)),
  ].filter(Boolean);
}

// Decode the data: gzipped JSON in base64.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

unpacked(document.getElementById("viewer-data").textContent).then((data) => new Viewer(data));
