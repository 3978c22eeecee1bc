// Packets dropped and answered, by reason, with the last of each.

import { download, get } from "./api.js";
import { count, el, many, table } from "./dom.js";

export async function drops(place, session) {
  const counters = el("div");
  const packets = el("div");
  let chosen = null;

  const open = async (reason) => {
    chosen = reason;
    const found = await get("/drops/packets", { reason });
    const columns = [
      ["time", (packet) => packet.time.replace("T", " ").replace("Z", "")],
      ["packet", (packet) => packet.packet],
      ["verdict", (packet) => packet.verdict],
      ["by", (packet) => packet.interface ?? "?"],
      ["to", (packet) => packet.egress ?? ""],
      ["rule", (packet) => packet.rule ?? ""],
      ["class", (packet) => packet.class ?? ""],
      ["translations", (packet) => packet.translations.join(", ")],
    ];
    packets.replaceChildren(
      el("h3", {}, `Last packets of ${reason}`),
      table(`${many(found.length, "packet", "packets")}, times in UTC`, columns, found, "none is remembered"),
      el("p", {}, el("a", { href: download("/drops/pcapng", { reason }), download: `${reason}.pcapng` }, "Save them as pcapng")),
    );
  };

  const draw = async () => {
    const rows = await get("/drops");
    rows.sort((one, other) => other.dropped + other.answered - one.dropped - one.answered);
    const columns = [
      ["reason", (row) => (session.may("operate")
        ? el("button", { type: "button", "aria-pressed": String(row.reason === chosen), onclick: () => open(row.reason).catch(session.trouble) }, row.reason)
        : row.reason)],
      ["dropped", (row) => count(row.dropped), "number"],
      ["answered", (row) => count(row.answered), "number"],
    ];
    // The one that has the focus keeps it.
    const focus = counters.contains(document.activeElement) ? document.activeElement.textContent : null;
    counters.replaceChildren(table("By reason, since the start", columns, rows, "no packet was dropped"));
    if (focus) [...counters.querySelectorAll("button")].find((button) => button.textContent === focus)?.focus();
  };

  place.replaceChildren(counters, packets);
  await draw();
  return draw;
}
