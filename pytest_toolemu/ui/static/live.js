// Says so when the application ends, and takes that back when it answers again.

const gone = document.getElementById("gone");

document.addEventListener("htmx:sendError", () => {
  gone.hidden = false;
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) gone.hidden = true;
});
