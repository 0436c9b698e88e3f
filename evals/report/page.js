// The button that changes between light and dark. The choice is kept where the browser lets
// a page from disk keep one.

const themeKey = "art-e-theme";

function chosenTheme() {
  try {
    return localStorage.getItem(themeKey);
  } catch {
    return null; // storage is switched off
  }
}

function showTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}

showTheme(chosenTheme());

document.getElementById("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim();
  const theme = dark === "1" ? "light" : "dark";
  showTheme(theme);
  try {
    localStorage.setItem(themeKey, theme);
  } catch {
    // The page shows it all the same, until it is closed.
  }
});
