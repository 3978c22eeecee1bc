// Flows: search, page by page, and kill.

import { get, post } from "./api.js";
import { count, duration, el, field, many, table } from "./dom.js";

const LIMIT = 100;

const end = (address, port) => {
  if (port === undefined || port === null) return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
};

export async function flows(place, session) {
  const found = el("div", { "aria-live": "polite" });
  let query = {};
  let search = 0;

  const read = (form) => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value));

  // Each answer comes in bounded time; the search goes on until there is a screen of flows, or no more.
  const look = async (after) => {
    search += 1;
    const own = search;
    const rows = [];
    let next = after;
    do {
      const listed = await get("/flows", { ...query, limit: LIMIT - rows.length, after: next });
      if (own !== search) return;
      rows.push(...listed.flows);
      next = listed.next;
      if (next && rows.length < LIMIT) found.replaceChildren(el("p", { class: "soft" }, `searching … ${count(rows.length)} so far`));
    } while (next && rows.length < LIMIT);
    show(rows, next);
  };

  const show = (rows, next) => {
    const columns = [
      ["protocol", (flow) => flow.protocol],
      ["from", (flow) => end(flow.source, flow.sport)],
      ["to", (flow) => (flow.icmp ? `${flow.destination} ${flow.icmp.name}` : end(flow.destination, flow.dport))],
      ["state", (flow) => flow.state + (flow.fast_path ? ", fast path" : "") + (flow.validated ? "" : ", to be revalidated")],
      ["rule", (flow) => flow.rule ?? "default"],
      ["translated", (flow) => (flow.nat.length ? `${end(flow.seen_as, flow.seen_port)} > ${end(flow.reached, flow.reached_port)} (${flow.nat.join(", ")})` : "")],
      ["by", (flow) => flow.interface ?? "?"],
      ["idle", (flow) => duration(flow.idle_seconds), "number"],
      ["age", (flow) => duration(flow.age_seconds), "number"],
    ];
    if (session.may("operate")) columns.push(["", (flow) => el("button", { type: "button", onclick: () => killOne(flow) }, "Kill")]);
    const buttons = el("div", { class: "buttons" },
      next ? el("button", { type: "button", id: "more", onclick: () => guard(() => look(next)) }, "Next flows") : null,
      session.may("operate") && Object.keys(query).length
        ? el("button", { type: "button", id: "kill", onclick: killAll }, "Kill all that match") : null);
    found.replaceChildren(table(`${many(rows.length, "flow", "flows")}${next ? ", and there may be more" : ""}`, columns, rows, "no flow matches"), buttons);
  };

  const guard = async (work) => {
    try {
      session.trouble(null);
      await work();
    } catch (error) {
      session.trouble(error);
    }
  };

  const kill = (which) => guard(async () => {
    const { ended } = await post("/flows/kill", which);
    await look();
    found.prepend(el("p", { class: "care" }, `ended ${many(ended, "flow", "flows")}`));
  });

  const killAll = () => {
    const words = Object.entries(query).map(([name, value]) => `${name} ${value}`).join(", ");
    if (confirm(`End all flows with ${words}?`)) kill(query);
  };

  // A query names ends, not a flow: what else has this source and port goes, too.
  const killOne = (flow) => {
    const which = { host: flow.source, protocol: flow.protocol, port: flow.sport ?? undefined, icmp_id: flow.icmp?.id };
    const words = Object.entries(which).filter(([, value]) => value !== undefined).map(([name, value]) => `${name} ${value}`).join(", ");
    if (confirm(`End the flows with ${words}?`)) kill(which);
  };

  const form = el("form", { id: "search", role: "search", onsubmit: (event) => {
    event.preventDefault();
    query = read(event.target);
    guard(() => look());
  } },
    field("Address or prefix", { name: "host" }),
    field("Port", { name: "port", inputmode: "numeric", size: 6 }),
    field("Protocol", { name: "protocol" }, ["", "tcp", "udp", "icmp", "icmpv6"]),
    field("Rule", { name: "rule" }),
    field("Translation", { name: "nat" }),
    field("Interface", { name: "interface" }),
    field("State", { name: "state" }),
    el("button", { class: "main" }, "Search"));
  place.replaceChildren(form, found);
  await look();
}
