// What every page does: the theme, the CSRF token of requests, and the keyboard.
import { csrfToken } from "./post.js";

document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["x-csrf-token"] = csrfToken();
});

const dark = matchMedia("(prefers-color-scheme: dark)");
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const current = root.dataset.theme || (dark.matches ? "dark" : "light");
  root.dataset.theme = current === "dark" ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  document.dispatchEvent(new CustomEvent("themechange"));
});

const items = () => [...document.querySelectorAll("[data-item]")];

// Move the focus in a list of links.
function moveFocus(by) {
  const all = items();
  const next = all[all.indexOf(document.activeElement) + by];
  if (next) next.focus();
  return Boolean(next);
}

document.addEventListener("keydown", (event) => {
  const search = document.getElementById("search");
  if (search && event.target === search && (event.key === "ArrowDown" || event.key === "Enter")) {
    if (moveFocus(1)) event.preventDefault();
    return;
  }
  if (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input, select, textarea, [contenteditable]")
  )
    return;
  const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (link) {
    link.click();
  } else if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "j") {
    moveFocus(1);
  } else if (event.key === "k") {
    moveFocus(-1);
  }
});

// A filter applies when it is chosen. The search does so while one types, which htmx observes.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form.filters");
  if (form && event.target.matches("select")) form.requestSubmit();
});

// Areas that scroll can be reached by keyboard.
function makeScrollable() {
  for (const area of document.querySelectorAll("pre, .changes, .rows td > *")) {
    if (area.scrollHeight > area.clientHeight || area.scrollWidth > area.clientWidth) area.tabIndex = 0;
  }
}
makeScrollable();
addEventListener("resize", makeScrollable);
document.addEventListener("toggle", makeScrollable, true);
document.addEventListener("htmx:afterSettle", makeScrollable);
