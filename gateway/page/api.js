// Requests to the gateway's API.

const BASE = "/api/v1";

/** An answer that is an error, with the remedy that the gateway names. */
export class Trouble extends Error {
  constructor(status, error, hint) {
    super(error);
    this.status = status;
    this.hint = hint;
  }
}

function path(route, query) {
  const known = Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const words = new URLSearchParams(known).toString();
  return BASE + route + (words ? `?${words}` : "");
}

async function ask(route, query, options) {
  let response;
  try {
    response = await fetch(path(route, query), { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new Trouble(0, "the gateway does not answer", "is it running, and reachable from here?");
  }
  const text = await response.text();
  const isJson = (response.headers.get("content-type") ?? "").startsWith("application/json");
  let value = text;
  if (isJson) value = text ? JSON.parse(text) : null;
  if (!response.ok) throw new Trouble(response.status, value?.error ?? `answer ${response.status}`, value?.hint ?? "");
  return value;
}

export const get = (route, query) => ask(route, query);

/** Sends a change; `body` is an object, or the text of a policy. */
export function post(route, query, body) {
  const isPolicy = typeof body === "string";
  return ask(route, query, {
    method: "POST",
    headers: { "content-type": isPolicy ? "application/toml" : "application/json" },
    body: isPolicy ? body : JSON.stringify(body ?? {}),
  });
}

/** Address of a file that the browser is to save. */
export const download = (route, query) => path(route, query);
