// State of the gateway, rates of its interfaces, and the health of WANs and servers.

import { get } from "./api.js";
import { count, duration, el, facts, si, table } from "./dom.js";

const percent = (share) => `${Math.round(100 * share)} %`;
const up = (is, word) => el("span", { class: is ? "good" : "bad" }, word);
const checks = (check) => (check ? `${count(check.lost)} of ${count(check.rounds)} failed` : "none");

const wans = [
  ["WAN", (wan) => wan.name],
  ["interface", (wan) => wan.interface],
  ["state", (wan) => up(wan.standing === "up", wan.standing)],
  ["reason", (wan) => wan.trouble ?? ""],
  ["tier", (wan) => count(wan.tier), "number"],
  ["new IPv4 flows", (wan) => percent(wan.share_ipv4), "number"],
  ["new IPv6 flows", (wan) => percent(wan.share_ipv6), "number"],
  ["checks", (wan) => checks(wan.check)],
];

const servers = [
  ["translation", (server) => server.nat],
  ["server", (server) => server.server],
  ["state", (server) => up(server.state === "up", server.state)],
  ["reason", (server) => server.trouble ?? ""],
  ["new connections", (server) => percent(server.share), "number"],
  ["checks", (server) => checks(server.check)],
];

const multicast = [
  ["group", (route) => route.group],
  ["source", (route) => route.source ?? "any"],
  ["from", (route) => route.from],
  ["to", (route) => route.to.map((exit) => exit.interface).join(", ") || "nowhere"],
  ["packets", (route) => count(route.packets), "number"],
];

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
      state.wans.length ? table("WANs", wans, state.wans) : "",
      state.multicast_routes.length ? table("Multicast routes", multicast, state.multicast_routes) : "",
      state.servers.length ? table("Servers", servers, state.servers) : "",
      notes.length ? el("div", {}, el("h3", {}, "Notes"), el("ul", {}, notes.map((note) => el("li", {}, note)))) : "",
    );
    before = { now, ports: new Map(ports.map((port) => [port.interface, port])) };
  };

  await draw();
  return draw;
}
