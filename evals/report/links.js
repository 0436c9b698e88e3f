// Convert the viewer's state to the fragment of the page's address, and back.

const FILTERS = [
  "q", "model", "outcome", "where", "kind", "run", "step", "min", "max", "question",
];
const PLACES = [...FILTERS, "sort", "page", "episode", "with", "models"];

function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a literal "%"
  }
}

// Parse the view in an address; null if it names another part of the page.
function parseLink(hash) {
  const text = hash.replace(/^#/, "");
  const view = {};
  for (const part of text.split("&")) {
    const at = part.indexOf("=");
    const name = part.slice(0, Math.max(at, 0));
    if (!PLACES.includes(name)) continue;
    const value = part.slice(at + 1);
    // Model names are joined by unescaped commas.
    view[name] = name === "models" ? value.split(",").map(unescaped) : unescaped(value);
  }
  const ours = text === "" || text === "viewer" || Object.keys(view).length > 0;
  return ours ? view : null;
}

function linkTo(view) {
  const parts = PLACES.filter((name) => name !== "models" && view[name]).map(
    (name) => `${name}=${encodeURIComponent(view[name])}`,
  );
  return `#${parts.join("&") || "viewer"}`;
}
