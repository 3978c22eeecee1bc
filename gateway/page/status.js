// State of the gateway, and rates of its interfaces.

import { get } from "./api.js";
import { count, duration, el, facts, si, table } from "./dom.js";

export async function status(place) {
  let before = null;

  const draw = async (known) => {
    const [state, ports] = await Promise.all([known ?? get("/status"), get("/ports")]);
    const now = performance.now();
    const rate = (port, of) => {
      const old = before?.ports.get(port.interface);
      return old ? Math.max(0, port[of] - old[of]) / ((now - before.now) / 1000) : null;
    };
    const shownRate = (of, unit, times = 1) => (port) => {
      const value = rate(port, of);
      return value === null ? "…" : si(value * times, unit);
    };
    const columns = [
      ["interface", (port) => port.interface],
      ["state", (port) => el("span", { class: port.state === "up" ? "good" : "bad" }, port.state)],
      ["carrier", (port) => el("span", { class: port.carrier === "down" ? "bad" : null }, port.carrier)],
      ["bits in", shownRate("received_bytes", "bit/s", 8), "number"],
      ["bits out", shownRate("sent_bytes", "bit/s", 8), "number"],
      ["packets in", shownRate("received", "pkt/s"), "number"],
      ["packets out", shownRate("sent", "pkt/s"), "number"],
      ["received", (port) => count(port.received), "number"],
      ["sent", (port) => count(port.sent), "number"],
      ["missed", (port) => count(port.missed), "number"],
      ["unsent", (port) => count(port.unsent + port.tx_dropped + port.qdisc_dropped), "number"],
      ["driver", (port) => port.driver],
    ];
    const notes = [...state.notes, ...state.ports_not_up.map((name) => `${name} is not up`),
      ...state.ports_without_carrier.map((name) => `${name} has no carrier`)];
    place.replaceChildren(
      facts([
        ["up for", duration(state.uptime_seconds)],
        ["flows", `${count(state.flows)} of ${count(state.flow_capacity)}`],
        ["forwarded", count(state.forwarded)],
        ["delivered", count(state.delivered)],
        ["answered", count(state.answered)],
        ["dropped", count(state.dropped)],
        ["queued", count(state.queued)],
        ["version", state.version],
      ]),
      table("Interfaces", columns, ports),
      notes.length ? el("div", {}, el("h3", {}, "Notes"), el("ul", {}, notes.map((note) => el("li", {}, note)))) : "",
    );
    before = { now, ports: new Map(ports.map((port) => [port.interface, port])) };
  };

  await draw();
  return draw;
}
