// Keys of the page of a run: s goes to the next risky step; the button shows what the agent did not know.

const transcript = document.querySelector(".transcript");
const reveal = document.getElementById("reveal");
const unknown = [...transcript.querySelectorAll("summary > .unknown")].map((mark) => mark.closest("details"));

if (unknown.length) {
  reveal.hidden = false;
  reveal.addEventListener("click", () => {
    const shown = transcript.classList.toggle("reveal");
    reveal.setAttribute("aria-pressed", shown);
    unknown.forEach((details) => {
      details.open = shown;
    });
  });
}

document.addEventListener("keydown", (event) => {
  if (
    event.key !== "s" ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input, select, textarea")
  )
    return;
  const risky = [...transcript.querySelectorAll(".step.risky")].map((step) => `#${step.id}`);
  if (risky.length) location.hash = risky[(risky.indexOf(location.hash) + 1) % risky.length];
});
