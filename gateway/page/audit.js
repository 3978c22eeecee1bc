// Audit log: logins, refusals and changes.

import { get } from "./api.js";
import { el, table } from "./dom.js";

export async function audit(place) {
  const draw = async () => {
    const entries = await get("/audit");
    place.replaceChildren(table("The latest first, times in UTC; the gateway's log has all", [
      ["time", (entry) => entry.time.replace("T", " ").replace("Z", "")],
      ["user", (entry) => entry.user ?? "-"],
      ["address", (entry) => entry.address],
      ["request", (entry) => entry.request, "wrap"],
      ["result", (entry) => el("span", { class: entry.status < 400 ? "good" : "bad" }, String(entry.status))],
    ], entries, "nothing yet"));
  };
  await draw();
  return draw;
}
