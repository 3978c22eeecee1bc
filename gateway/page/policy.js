// The policy: edit, what would change, put in force on trial.

import { get, post } from "./api.js";
import { el, field, many, table } from "./dom.js";

export async function policy(place, session) {
  const text = el("textarea", { id: "policy", spellcheck: "false", wrap: "off", "aria-label": "Policy (TOML)", readonly: !session.may("change") });
  const told = el("div", { "aria-live": "polite", id: "plan" });
  const apply = el("button", { type: "button", class: "main", id: "apply", disabled: true }, "Put in force");
  const time = field("Goes back unless confirmed within, in seconds", { name: "confirm", inputmode: "numeric", value: "60", size: 6 });
  const comment = field("Comment", { name: "comment", wide: true });
  const history = el("div");
  let checked = null;
  // Text of the policy on trial, put in force here; and whether a trial is known to be under way.
  let tried = null;
  let onTrial = false;

  const guard = async (work) => {
    try {
      session.trouble(null);
      await work();
    } catch (error) {
      session.trouble(error);
    }
  };

  const load = async () => {
    text.value = await get("/policy");
    told.replaceChildren();
    apply.disabled = true;
    await list();
  };

  const list = async () => {
    const kept = await get("/policy/history").catch(() => null);
    history.replaceChildren(kept ? table("Policies that were put in force", [
      ["number", (entry) => String(entry.number) + (entry.number === kept.in_force ? ", in force" : ""), "number"],
      ["time", (entry) => entry.time.replace("T", " ").replace("Z", "")],
      ["from", (entry) => entry.origin],
      ["by", (entry) => entry.user ?? ""],
      ["comment", (entry) => entry.comment ?? "", "wrap"],
      ["", (entry) => el("button", { type: "button", onclick: () => guard(async () => {
        text.value = await get("/policy/kept", { number: entry.number });
        await plan();
      }) }, "Open")],
    ], [...kept.entries].reverse()) : el("p", { class: "soft" }, "This gateway keeps no history."));
  };

  // Confirmed or rolled back, here or elsewhere, or its time is up. What was written since stays.
  const end = async () => {
    const stays = await get("/policy") === tried;
    tried = null;
    told.replaceChildren(stays
      ? el("p", { class: "good" }, "Confirmed: it is in force for good.")
      : el("p", { class: "care" }, "Rolled back: the policy before is in force again."));
    await list();
  };

  const plan = () => guard(async () => {
    const asked = text.value;
    apply.disabled = true;
    const view = await post("/plan", {}, asked);
    const faults = view.diagnostics.map((one) => el("li", { class: one.severity === "error" ? "bad" : "care" },
      `${one.line ? `line ${one.line}: ` : ""}${one.message}`, one.hint ? el("span", { class: "soft" }, ` – ${one.hint}`) : null));
    const changes = view.changes.map((change) => el("li", {}, el("strong", {}, `${change.kind} ${change.thing}`),
      change.old.length + change.new.length
        ? el("pre", {}, change.old.map((line) => el("span", { class: "bad" }, `- ${line}\n`)), change.new.map((line) => el("span", { class: "good" }, `+ ${line}\n`)))
        : null));
    told.replaceChildren(
      faults.length ? el("div", {}, el("h3", {}, view.sound ? "Warnings" : `It has errors (${many(view.diagnostics_total, "remark", "remarks")})`), el("ul", {}, faults)) : "",
      view.sound ? el("h3", {}, changes.length ? many(changes.length, "change", "changes") : "Nothing changes") : "",
      el("ul", {}, changes),
      ...view.closed.map((name) => el("p", { class: "bad" }, `${name} is closed then, until “wirerate release ${name}”`)),
    );
    checked = asked;
    apply.disabled = !view.sound || !changes.length;
  });

  text.addEventListener("input", () => { apply.disabled = apply.disabled || text.value !== checked; });
  apply.addEventListener("click", () => guard(async () => {
    const seconds = time.querySelector("input").value.trim();
    if (!seconds && !confirm("Without a time there is no way back should this lock you out. Put it in force for good?")) return;
    apply.disabled = true;
    const done = await post("/apply", { confirm: seconds, comment: comment.querySelector("input").value.trim() }, checked);
    tried = done.confirm_seconds ? checked : null;
    await load();
    if (tried !== null) tried = text.value;
    told.replaceChildren(el("p", { class: "good" }, done.confirm_seconds
      ? `In force, on trial for ${done.confirm_seconds} s: confirm it above.` : "In force."));
    await session.refresh();
  }));

  const change = session.may("change") ? [el("div", { class: "buttons" }, time, comment, apply)] : [];
  place.replaceChildren(
    text,
    el("div", { class: "buttons" },
      el("button", { type: "button", id: "check", onclick: plan }, "Check, and show what changes"),
      el("button", { type: "button", onclick: () => guard(load) }, "The policy in force")),
    told, ...change, el("h3", {}, "History"), history);
  await load();
  return async (state) => {
    const before = onTrial;
    onTrial = (state.trial_seconds ?? null) !== null;
    if (before && !onTrial && tried !== null) await end();
  };
}
