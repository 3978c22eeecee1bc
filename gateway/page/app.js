// The page: login, views by the fragment of the address, and the policy on trial, which every view shows.

import { Trouble, get, post } from "./api.js";
import { el, field } from "./dom.js";
import { audit } from "./audit.js";
import { drops } from "./drops.js";
import { explain } from "./explain.js";
import { flows } from "./flows.js";
import { mappings } from "./mappings.js";
import { policy } from "./policy.js";
import { queues } from "./queues.js";
import { rules } from "./rules.js";
import { sets } from "./sets.js";
import { status } from "./status.js";
import { zones } from "./zones.js";

const ROLES = ["read", "operate", "change"];

// Title and view: a view fills an element, and may return a function that refreshes it. It is called with the session.
const VIEWS = {
  status: ["Status", status],
  flows: ["Flows", flows],
  drops: ["Drops", drops],
  rules: ["Rules", rules],
  sets: ["Sets", sets],
  mappings: ["Ports", mappings],
  queues: ["Queues", queues],
  zones: ["Zones", zones],
  explain: ["Explain", explain],
  policy: ["Policy", policy],
  audit: ["Audit", audit, "change"],
};

const INTERVAL = 2000;

const at = (id) => document.getElementById(id);
const session = { user: null, role: null, may: (role) => ROLES.indexOf(session.role) >= ROLES.indexOf(role), trouble, refresh: () => turn() };
let refresh = null;
let shown = 0;
// Numbers of the last turn that has asked for the state, and of the last whose answer counts.
let asked = 0;
let answered = 0;

function trouble(error) {
  const place = at("trouble");
  place.hidden = !error;
  place.replaceChildren(...(error ? [el("strong", {}, error.message), error.hint ? ` – ${error.hint}` : ""] : []));
  if (error && !(error instanceof Trouble)) console.error(error);
}

function login() {
  session.user = session.role = refresh = null;
  shown += 1;
  for (const id of ["views", "who", "trial"]) at(id).hidden = true;
  const token = field("Token", { name: "token", type: "password", required: true, autocomplete: "current-password", wide: true });
  const send = async (event) => {
    event.preventDefault();
    try {
      enter(await post("/login", {}, { token: event.target.elements.token.value.trim() }));
      trouble(null);
    } catch (error) {
      trouble(error);
      event.target.elements.token.value = "";
      event.target.elements.token.focus();
    }
  };
  at("main").replaceChildren(
    el("h2", {}, "Log in"),
    el("form", { id: "login", onsubmit: send }, token, el("button", { class: "main" }, "Log in")),
    el("p", { class: "soft" }, "On the gateway, ", el("code", {}, "wirerate token add NAME --role read"), " makes a token."),
  );
  at("main").querySelector("input").focus();
}

function enter(me) {
  session.user = me.user;
  session.role = me.role;
  at("me").textContent = `${me.user} (${me.role})`;
  const known = Object.entries(VIEWS).filter(([, [, , role]]) => !role || session.may(role));
  at("views").replaceChildren(...known.map(([name, [title]]) => el("a", { href: `#${name}` }, title)));
  at("views").hidden = at("who").hidden = false;
  show();
}

async function show() {
  if (!session.user) return;
  const name = location.hash.slice(1).split("?")[0];
  const [title, view] = VIEWS[name] ?? VIEWS.status;
  shown += 1;
  const turnOf = shown;
  for (const link of at("views").children) {
    if (link.getAttribute("href") === `#${VIEWS[name] ? name : "status"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} – wirerate`;
  trouble(null);
  const place = el("div");
  at("main").replaceChildren(el("h2", {}, title), place);
  at("main").focus({ preventScroll: true });
  refresh = null;
  await guarded(async () => {
    const again = await view(place, session);
    if (turnOf === shown) refresh = again ?? null;
  });
}

async function guarded(work) {
  try {
    await work();
    return true;
  } catch (error) {
    if (error.status === 401) login();
    else trouble(error);
    return false;
  }
}

// The trial of a policy: it runs on wherever one looks.
function trial(seconds) {
  const place = at("trial");
  place.hidden = seconds === null || seconds === undefined;
  if (place.hidden) return;
  const decide = (what) => async () => {
    if (await guarded(() => post(what))) {
      place.hidden = true;
      turn();
    }
  };
  const buttons = session.may("change")
    ? [el("button", { type: "button", class: "main", id: "confirm", onclick: decide("/confirm") }, "Confirm"),
       el("button", { type: "button", id: "rollback", onclick: decide("/rollback") }, "Roll back")]
    : [];
  if (!place.querySelector("strong")) place.replaceChildren(el("strong"), el("div", { class: "buttons" }, buttons));
  place.querySelector("strong").textContent = `A policy is on trial: it is rolled back in ${Math.ceil(seconds)} s unless it is confirmed.`;
}

async function turn() {
  if (!session.user || document.hidden) return;
  const turnOf = shown;
  asked += 1;
  const own = asked;
  await guarded(async () => {
    const state = await get("/status");
    // Another turn, which asked later, may have had its answer first.
    if (own < answered) return;
    answered = own;
    trial(state.trial_seconds);
    if (refresh && turnOf === shown) await refresh(state);
  });
}

async function tick() {
  await turn();
  setTimeout(tick, INTERVAL);
}

at("logout").addEventListener("click", () => guarded(async () => {
  await post("/logout");
  login();
}));
addEventListener("hashchange", show);
get("/me").then(enter, login).finally(tick);
