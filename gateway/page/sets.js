// Dynamic sets: where they come from, how full they are, and their elements, which may be added and removed.

import { get, post } from "./api.js";
import { count, duration, el, field, many, table } from "./dom.js";

// Rows shown at once: more would make the browser slow, and nobody reads them.
const SHOWN = 1000;

export async function sets(place, session) {
  const list = el("div");
  const chosen = el("div", { "aria-live": "polite" });
  let name = null;

  const guard = async (work) => {
    try {
      session.trouble(null);
      await work();
    } catch (error) {
      session.trouble(error);
    }
  };

  const draw = async () => {
    const all = await get("/sets");
    const choose = (set) => el("button", { type: "button", onclick: () => guard(() => open(set)) }, "Show");
    list.replaceChildren(table("Dynamic sets", [
      ["set", (set) => set.name],
      ["elements", (set) => `${count(set.elements)} of ${count(set.size)}`, "number"],
      ["filled by", (set) => set.source ?? "rules and requests"],
      ["list read", (set) => (set.age_seconds === null ? "" : `${duration(set.age_seconds)} ago`)],
      ["faulty lines", (set) => (set.source ? count(set.faults) : ""), "number"],
      ["refused", (set) => count(set.refused), "number"],
      ["expired", (set) => count(set.expired), "number"],
      ["", choose],
    ], all, "the policy has none"), ...all.filter((set) => set.trouble).map((set) =>
      el("p", { class: "care" }, `${set.name}: ${set.trouble}; the set keeps its last good list`)));
  };

  const change = (what, set, body) => guard(async () => {
    const done = await post(what, what === "/sets/flush" ? { set: set.name } : {}, body);
    await Promise.all([draw(), open(set)]);
    const told = Object.entries(done).filter(([, number]) => number > 0).map(([outcome, number]) => `${count(number)} ${outcome}`);
    chosen.prepend(el("p", { class: done.refused ? "care" : null, role: "status" }, told.join(", ") || "nothing has changed"));
  });

  const open = async (set) => {
    name = set.name;
    const rows = [];
    let after = 0;
    do {
      const listed = await get("/sets/elements", { set: set.name, after });
      if (name !== set.name) return;
      rows.push(...listed.elements);
      after = listed.next;
    } while (after !== null && rows.length < SHOWN);
    const faults = set.source ? (await get("/sets/faults", { set: set.name })).faults : [];
    const mayChange = session.may("operate") && !set.source;
    const columns = [
      ["element", (row) => row.element],
      ["expires", (row) => (row.expires_seconds === null ? "never" : `in ${duration(row.expires_seconds)}`)],
    ];
    if (mayChange) {
      columns.push(["", (row) => el("button", { type: "button", onclick: () =>
        change("/sets/remove", set, { set: set.name, elements: [row.element] }) }, "Remove")]);
    }
    const add = (event) => {
      event.preventDefault();
      const form = event.target.elements;
      const elements = form.list.value.split(/[\s,]+/).filter((word) => word);
      const timeout = form.timeout.value.trim();
      change("/sets/add", set, { set: set.name, elements, ...(timeout ? { timeout } : {}) });
    };
    const flush = () => {
      if (confirm(`Remove all elements of ${set.name}?`)) change("/sets/flush", set, {});
    };
    const form = el("form", { id: "add", onsubmit: add },
      field("Addresses and networks", { name: "list", required: true, wide: true }),
      field("Expire after", { name: "timeout", size: 6, placeholder: "1h" }),
      el("button", { class: "main" }, "Add"),
      el("button", { type: "button", id: "flush", onclick: flush }, "Remove all"));
    const shown = rows.slice(0, SHOWN);
    const more = rows.length > SHOWN || after !== null;
    chosen.replaceChildren(...[
      el("h3", {}, set.name),
      mayChange ? form : null,
      table(`${many(shown.length, "element", "elements")}${more ? ", and there are more" : ""}`, columns, shown, "empty"),
      faults.length ? table("Lines that say no address", [
        ["line", (fault) => count(fault.line), "number"],
        ["text", (fault) => fault.text],
        ["fault", (fault) => fault.fault],
      ], faults.slice(0, SHOWN)) : null,
    ].filter((part) => part));
  };

  place.replaceChildren(list, chosen);
  await draw();
  return draw;
}
