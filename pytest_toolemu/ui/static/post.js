// Requests that change something. No module may import app.js, which would run twice then and undo each of its clicks.

/** Return the token that proves that a request comes from a page of the application. */
export const csrfToken = () => document.querySelector("meta[name=csrf-token]").content;

/** Send JSON to the application; rejects with its message unless it answers with success. */
export async function post(url, body) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", "x-csrf-token": csrfToken() },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(await response.text());
  return response;
}
