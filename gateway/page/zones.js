// Map of zones: which may speak to which, by default and by rules.

import { get } from "./api.js";
import { el, svg, table } from "./dom.js";

const SIZE = 480;
const RADIUS = 44;

/** `open`: by default; `some`: by rules; `none`: rules refuse, and nothing else is let through. */
const kind = (pair) => {
  if (pair.default === "accept") return "open";
  return pair.rules.some((rule) => rule.action === "accept") ? "some" : "none";
};

const MEANING = { open: "accepted, unless a rule refuses", some: "what rules accept", none: "nothing" };

function map({ zones, pairs }) {
  const middle = SIZE / 2;
  const far = middle - RADIUS - 20;
  const place = new Map(zones.map((zone, number) => {
    const angle = (2 * Math.PI * number) / zones.length - Math.PI / 2;
    const out = zones.length === 1 ? 0 : far;
    return [zone.name, { x: middle + out * Math.cos(angle), y: middle + out * Math.sin(angle) }];
  }));
  const lines = pairs.filter((pair) => pair.from !== pair.to && kind(pair) !== "none").map((pair) => {
    const [a, b] = [place.get(pair.from), place.get(pair.to)];
    const long = Math.hypot(b.x - a.x, b.y - a.y);
    const [dx, dy] = [(b.x - a.x) / long, (b.y - a.y) / long];
    // To the right of its direction, so that the way back has a line of its own.
    const [sx, sy] = [-dy * 9, dx * 9];
    const gap = RADIUS + 4;
    const line = `M${a.x + dx * gap + sx} ${a.y + dy * gap + sy} L${b.x - dx * (gap + 6) + sx} ${b.y - dy * (gap + 6) + sy}`;
    return svg("path", { d: line, class: kind(pair), "marker-end": `url(#tip-${kind(pair)})` },
      svg("title", {}, `${pair.from} to ${pair.to}: ${MEANING[kind(pair)]}`));
  });
  const dots = zones.map((zone) => {
    const { x, y } = place.get(zone.name);
    const short = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);
    return svg("g", {}, svg("title", {}, `${zone.name}: ${zone.interfaces.join(", ") || "the gateway itself, or what Linux forwards"}`),
      svg("circle", { cx: x, cy: y, r: RADIUS }), svg("text", { x, y }, short(zone.name)),
      svg("text", { x, y: y + 16, class: "small" }, short(zone.interfaces.join(", "))));
  });
  const tips = ["open", "some"].map((name) => svg("marker", { id: `tip-${name}`, viewBox: "0 0 10 10", refX: 8, refY: 5, markerWidth: 6, markerHeight: 6, orient: "auto" },
    svg("path", { d: "M0 0 10 5 0 10z" })));
  return svg("svg", { class: "map", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": "Zones and the connections between them, as in the table below" },
    svg("defs", {}, tips), lines, dots);
}

export async function zones(place) {
  const found = await get("/zones");
  const rulesOf = (pair) => {
    const words = pair.rules.map((rule) => `${rule.name} (${rule.action})`).join(", ");
    return pair.rules_total > pair.rules.length ? `${words} and ${pair.rules_total - pair.rules.length} more` : words;
  };
  place.replaceChildren(
    found.zones.length <= 24 ? map(found) : el("p", {}, `${found.zones.length} zones are too many for a drawing.`),
    el("p", { class: "soft" }, "A whole line: accepted by default. A broken line: what rules accept. Rules decide first, in their order; ",
      el("a", { href: "#explain" }, "explain"), " says what becomes of one packet."),
    table("New connections between zones; between all others, none", [
      ["from", (pair) => pair.from],
      ["to", (pair) => pair.to],
      ["lets through", (pair) => el("span", { class: { open: "good", some: "care", none: "bad" }[kind(pair)] }, MEANING[kind(pair)])],
      ["default", (pair) => pair.default],
      ["rules", rulesOf, "wrap"],
    ], found.pairs, "nothing passes"),
  );
}
