// Filter, search and sort the episodes of a view. Values that episodes share are searched once,
// and lower-cased on the first search.

class Finder {
  constructor(data) {
    this.data = data;
    this.lowered = null; // the shared values in lower case
    this.own = new Map(); // by episode: its unshared text, and the numbers of its shared values
    this.matches = new Map(); // by word: for each shared value, whether it has the word
  }

  // Return the episodes of `view`, as positions in `data.episodes`.
  list(view, columns) {
    const { episodes, questions } = this.data;
    const low = view.min ? Number(view.min) : -Infinity;
    const high = view.max ? Number(view.max) : Infinity;
    const words = wordsOf(view.q || "");
    const found = [];
    episodes.forEach((episode, position) => {
      const question = questions[episode.question];
      const fits =
        (!view.model || episode.model === view.model) &&
        (!view.outcome || episode.outcome === view.outcome) &&
        (!view.where || episode.where === view.where) &&
        (!view.kind || (question.kind ?? "unlabelled") === view.kind) &&
        (!view.run || episode.run === view.run) &&
        (!view.step || String(episode.step) === view.step) &&
        (!view.question || question.id === view.question) &&
        (!(view.min || view.max) ||
          (episode.reward !== null && episode.reward >= low && episode.reward <= high)) &&
        words.every((word) => this.says(position, word));
      if (fits) found.push(position);
    });
    return this.sorted(found, view.sort, columns);
  }

  // Sort by a column, "-name" descending. Episodes without a value always come last.
  sorted(found, sort, columns) {
    const column = columns.find((each) => each.name === (sort || "").replace(/^-/, ""));
    if (!column) return found;
    const way = sort.startsWith("-") ? -1 : 1;
    const keys = new Map(found.map((at) => [at, column.value(this.data.episodes[at])]));
    return found.sort((one, other) => {
      const [a, b] = [keys.get(one), keys.get(other)];
      if (a === null || b === null) return (a === null) - (b === null);
      return way * (typeof a === "string" ? COLLATOR.compare(a, b) : a - b);
    });
  }

  says(position, word) {
    const own = this.ownOf(position);
    if (own.text.includes(word)) return true;
    const having = this.having(word);
    return own.shared.some((number) => having[number]);
  }

  having(word) {
    this.lowered ??= this.data.shared.map((value) => textOf(value).toLowerCase());
    if (!this.matches.has(word)) {
      if (this.matches.size > 50) this.matches.clear(); // drop the prefixes typed on the way
      this.matches.set(word, this.lowered.map((value) => value.includes(word)));
    }
    return this.matches.get(word);
  }

  ownOf(position) {
    if (!this.own.has(position)) this.own.set(position, this.gather(this.data.episodes[position]));
    return this.own.get(position);
  }

  gather(episode) {
    const question = this.data.questions[episode.question];
    const shared = new Set([episode.asked]);
    const said = [
      episode.id, episode.answer, question.id, question.question, question.answer,
      ...episode.sources, ...episode.gold.map((mail) => mail.id),
      ...episode.verdicts.map((verdict) => verdict.reason), textOf(episode.error || {}),
    ];
    const note = (result) => {
      for (const hit of result.hits || []) shared.add(hit.head).add(hit.snippet);
      for (const kind of ["mail", "error", "note", "text"]) if (kind in result) shared.add(result[kind]);
    };
    for (const turn of episode.turns) {
      if (turn.says !== null) shared.add(turn.says);
      turn.notes.forEach(note);
      for (const call of turn.calls) {
        said.push(call.tool, textOf(call.arguments));
        call.results.forEach(note);
      }
    }
    const text = said.filter((each) => typeof each === "string").join("\n").toLowerCase();
    return { text, shared: [...shared] };
  }
}

const COLLATOR = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

function textOf(value) {
  return typeof value === "string" ? value : Object.values(value).flat().join("\n");
}

// Split a search into words; a phrase in quotes is one word.
function wordsOf(search) {
  return [...search.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g)].map((found) => found[1] || found[0]);
}
