// Rules, translations and classes with what each decided, and the rules that never matched.

import { get } from "./api.js";
import { count, el, si, table } from "./dom.js";

export async function rules(place) {
  const draw = async () => {
    const [all, nats, classes] = await Promise.all([get("/rules"), get("/nat"), get("/classes")]);
    const hits = [
      ["packets", (row) => count(row.packets), "number"],
      ["bytes", (row) => si(row.bytes, "B"), "number"],
    ];
    const idle = all.filter((rule) => rule.packets === 0);
    place.replaceChildren(
      table("Rules, in their order", [["rule", (rule) => rule.name], ["action", (rule) => rule.action], ...hits], all, "the policy has none"),
      el("h3", {}, `Never matched (${count(idle.length)})`),
      el("p", { id: "idle" }, idle.length ? idle.map((rule) => rule.name).join(", ") : "all have matched"),
      el("h3", {}, "Translations"),
      table("Translations", [["translation", (nat) => nat.name], ["of", (nat) => nat.side], ...hits,
        ["refused", (nat) => count(nat.refused), "number"]], nats, "the policy has none"),
      el("h3", {}, "Classes"),
      table("Classes", [["class", (one) => one.name], ...hits, ...["green", "yellow", "red"].map((colour, place) =>
        [colour, (one) => count(one.colours[place]), "number"])], classes, "the policy has none"),
    );
  };
  await draw();
  return draw;
}
