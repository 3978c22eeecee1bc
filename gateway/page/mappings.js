// Port mappings: outside ports that hosts have asked for, which may be added and removed.

import { get, post } from "./api.js";
import { count, duration, el, field, many, table } from "./dom.js";

export async function mappings(place, session) {
  const list = el("div");

  const change = async (what, body) => {
    try {
      session.trouble(null);
      await post(what, {}, body);
      await draw();
    } catch (error) {
      session.trouble(error);
    }
  };

  const draw = async () => {
    const { mappings: all, counts } = await get("/port-mappings");
    const columns = [
      ["protocol", (row) => row.protocol],
      ["outside", (row) => `${row.outside}:${row.outside_port}`],
      ["inside", (row) => `${row.inside}:${row.inside_port}`],
      ["asked for by", (row) => row.by],
      ["expires", (row) => (row.expires_seconds === null ? "never" : `in ${duration(row.expires_seconds)}`)],
      ["description", (row) => row.description],
    ];
    if (session.may("operate")) {
      columns.push(["", (row) => el("button", { type: "button", onclick: () => change("/port-mappings/remove",
        { protocol: row.protocol, inside: row.inside, inside_port: row.inside_port }) }, "Remove")]);
    }
    list.replaceChildren(
      table(many(all.length, "port mapping", "port mappings"), columns, all),
      el("p", {}, `${count(counts.made)} made, ${count(counts.expired)} expired, ${count(counts.refused)} refused`));
  };

  const add = (event) => {
    event.preventDefault();
    const form = event.target.elements;
    const [port, timeout, description] = ["port", "timeout", "description"].map((name) => form[name].value.trim());
    change("/port-mappings/add", {
      protocol: form.protocol.value,
      inside: form.inside.value.trim(),
      inside_port: Number(form.inside_port.value),
      ...(port ? { outside_port: Number(port) } : {}),
      ...(timeout ? { timeout } : {}),
      ...(description ? { description } : {}),
    });
  };
  const form = el("form", { id: "map", onsubmit: add },
    field("Protocol", { name: "protocol" }, ["tcp", "udp"]),
    field("Host", { name: "inside", required: true, placeholder: "192.168.1.20" }),
    field("Port", { name: "inside_port", required: true, size: 6, inputmode: "numeric" }),
    field("Outside port", { name: "port", size: 6, inputmode: "numeric" }),
    field("Expire after", { name: "timeout", size: 6, placeholder: "1h" }),
    field("Description", { name: "description", maxlength: 32 }),
    el("button", { class: "main" }, "Add"));

  place.replaceChildren(...(session.may("operate") ? [list, form] : [list]));
  await draw();
  return draw;
}
