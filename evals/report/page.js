// The button that switches between light and dark. The choice is stored if the browser allows
// that for a page from disk.

const themeKey = "art-e-theme";

function chosenTheme() {
  try {
    return localStorage.getItem(themeKey);
  } catch {
    return null; // storage is disabled
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
    // The theme then lasts until the page is closed.
  }
});
