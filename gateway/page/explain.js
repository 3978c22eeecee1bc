// What the gateway would do with a packet, stage by stage.

import { get } from "./api.js";
import { el, field } from "./dom.js";

const host = (address, port) => {
  if (!port) return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
};

/** The packet in words, of the fields of the form. */
function words(of) {
  const ports = ["tcp", "udp"].includes(of.protocol);
  const from = host(of.source, ports ? of.sport || "40000" : "");
  const to = host(of.destination, ports ? of.dport : "");
  const more = { tcp: " syn", icmp: " echo-request", icmpv6: " echo-request" }[of.protocol] ?? "";
  return `${of.interface} ${of.protocol} ${from} > ${to}${more}`;
}

export async function explain(place, session) {
  const ports = await get("/ports");
  const told = el("div", { "aria-live": "polite" });
  const line = field("Packet in words", { name: "packet", wide: true, required: true, placeholder: "lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn" });

  const ask = async (event) => {
    event.preventDefault();
    told.replaceChildren(el("p", { class: "soft" }, "…"));
    try {
      session.trouble(null);
      told.replaceChildren(...way(await get("/explain", { packet: line.querySelector("input").value.trim() })));
    } catch (error) {
      told.replaceChildren();
      session.trouble(error);
    }
  };
  const put = (event) => {
    const of = Object.fromEntries([...new FormData(event.currentTarget)].map(([name, value]) => [name, value.trim()]));
    if (of.source && of.destination) line.querySelector("input").value = words(of);
  };
  place.replaceChildren(
    el("form", { id: "fields", oninput: put, onsubmit: (event) => { event.preventDefault(); put(event); place.querySelector("#explain").requestSubmit(); } },
      field("Comes in by", { name: "interface" }, ports.map((port) => port.interface)),
      field("Protocol", { name: "protocol" }, ["tcp", "udp", "icmp", "icmpv6"]),
      field("From", { name: "source", placeholder: "192.168.1.10" }),
      field("Port", { name: "sport", inputmode: "numeric", size: 6 }),
      field("To", { name: "destination", placeholder: "198.51.100.7" }),
      field("Port", { name: "dport", inputmode: "numeric", size: 6, value: "443" }),
      el("button", { hidden: true }, "Explain")),
    el("form", { id: "explain", onsubmit: ask }, line, el("button", { class: "main" }, "Explain")),
    told);
}

function way(account) {
  const stages = account.stages.map((stage) => el("li", { class: stage.took ? null : "skipped" },
    el("strong", {}, stage.stage), stage.took ? null : ` ${stage.says.join("; ")}`,
    stage.took ? stage.says.map((sentence) => el("p", {}, sentence)) : [],
    stage.verdict ? el("p", { class: "care" }, `decided: ${stage.verdict}`) : null));
  const mood = { forwarded: "good", delivered: "good", dropped: "bad" }[account.verdict] ?? "care";
  const sent = account.sent.map((one) => el("p", {}, `out by ${one.interface}: ${one.packet.words}`));
  const reason = account.reason ? [el("p", {}, `${account.reason.name}: ${account.reason.cause}`), el("p", { class: "soft" }, account.reason.remedy)] : [];
  const unknown = (account.live?.unknown ?? []).map((what) => el("p", { class: "soft" }, `not known: ${what}`));
  return [
    el("h3", {}, `${account.interface} ${account.packet.words}`),
    el("ol", { class: "way" }, stages, el("li", { class: `end ${mood}`, id: "verdict" }, account.verdict)),
    ...sent, ...reason,
    account.rule ? el("p", {}, `rule: ${account.rule.name}`) : "",
    account.nats.length ? el("p", {}, `translations: ${account.nats.map((nat) => nat.name).join(", ")}`) : "",
    el("p", { class: "soft" }, account.live?.flow ? "The gateway has a flow that the packet belongs to." : "The gateway has no flow that the packet belongs to."),
    ...unknown,
  ];
}
