// Queues, what waits in them, and how long packets waited.

import { get } from "./api.js";
import { count, delay, el, si, table } from "./dom.js";

export async function queues(place) {
  const draw = async () => {
    const all = await get("/queues");
    const leaves = all.flatMap((queue) => queue.queues.map((leaf) => ({ ...leaf, interface: queue.interface })));
    place.replaceChildren(
      table("Interfaces", [
        ["interface", (queue) => queue.interface],
        ["waiting", (queue) => count(queue.waiting), "number"],
        ["room", (queue) => count(queue.capacity), "number"],
      ], all),
      el("h3", {}, "Queues of trees"),
      table("Queues, with the delays that half, 95 % and 99 % of the packets did not exceed", [
        ["interface", (leaf) => leaf.interface],
        ["queue", (leaf) => leaf.name],
        ["side", (leaf) => leaf.side],
        ["classes", (leaf) => leaf.classes.join(", ")],
        ["waiting", (leaf) => count(leaf.waiting), "number"],
        ["sent", (leaf) => count(leaf.sent.packets), "number"],
        ["bytes", (leaf) => si(leaf.sent.bytes, "B"), "number"],
        ["full", (leaf) => count(leaf.dropped_full), "number"],
        ["early", (leaf) => count(leaf.dropped_early), "number"],
        ["marked", (leaf) => count(leaf.marked), "number"],
        ["50 %", (leaf) => delay(leaf.delay.p50), "number"],
        ["95 %", (leaf) => delay(leaf.delay.p95), "number"],
        ["99 %", (leaf) => delay(leaf.delay.p99), "number"],
      ], leaves, "no interface has a tree of queues"),
    );
  };
  await draw();
  return draw;
}
