//! Routes of the page's API: the handlers of the control socket, with the role that each asks for and words for its
//! description (OpenAPI).

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::Method;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use super::{Desk, basis, drops, explain, history, plan, port_mapping, queue, sa, set, trouble, zone};
use crate::drops::DroppedPacket;
use crate::history::HistoryView;
use crate::page::{self, Role};
use crate::port_mapping::{PortMappingRequest, PortMappingView, PortMappings, PortMappingsRemoved};
use crate::sa::AssociationView;
use crate::set::{Elements, SetChanged, SetFaults, SetRequest, SetView};
use crate::view;

/// Path before those of the routes.
pub(crate) const BASE: &str = "/api/v1";

/// A route.
pub(crate) struct Route {
    pub(crate) verb: Verb,
    /// Path, after [`BASE`].
    pub(crate) path: &'static str,
    /// Role that it takes; none: no login.
    pub(crate) role: Option<Role>,
    pub(crate) load: Load,
    /// Summary of one line.
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Parameter],
    pub(crate) body: Body,
    pub(crate) answer: Content,
    handler: fn() -> MethodRouter<Desk>,
}

/// Method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Changes nothing.
    Get,
    /// Changes something, or takes a body.
    Post,
}

/// Work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// By counters and names.
    Light,
    /// By tables of flows or packets, or by a whole policy: few at once.
    Heavy,
    /// A policy is put in force: few at once, and without the usual bound on time.
    Policy,
}

/// Parameter of a query.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) about: &'static str,
}

/// Body of a request.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    /// None; the content type is sent all the same.
    None,
    /// A policy, as TOML.
    Policy,
    /// JSON with these members, each a string.
    Json(&'static [&'static str]),
    /// JSON of this schema.
    Type(fn(&mut SchemaGenerator) -> Schema),
}

/// Content of a response.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// JSON of this schema.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A policy, as TOML.
    Policy,
    /// A capture file.
    Pcapng,
}

impl Verb {
    pub(crate) fn method(self) -> Method {
        match self {
            Verb::Get => Method::GET,
            Verb::Post => Method::POST,
        }
    }
}

const fn text(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind: "string", about }
}

const fn number(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind: "integer", about }
}

const HOST: Parameter = text("host", "Address or prefix of either end, before or after translation");
const PORT: Parameter = number("port", "Port of either end, before or after translation");
const ICMP_ID: Parameter = number("icmp_id", "Identifier of ICMP queries");
const PROTOCOL: Parameter = text("protocol", "tcp, udp, icmp, icmpv6 or a number");
const INTERFACE: Parameter = text("interface", "Ingress interface of the original direction");
const RULE: Parameter = text("rule", "Name of the rule that accepted the flow");
const NAT: Parameter = text("nat", "Name of a translation");
const STATE: Parameter = text("state", "State of the flow, such as established");
const SET: Parameter = text("set", "Name of a dynamic set");
const REASON: Parameter = text("reason", "Name of the reason; all if absent");
const LAST: Parameter = number("last", "Packets of each reason, at most: the latest");

/// JSON of a type.
const fn json<T: JsonSchema>() -> Content {
    Content::Json(schema_of::<T>)
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Any object.
type Any = Map<String, Value>;

/// A route that reads, for every user.
const fn read(
    path: &'static str,
    answer: Content,
    summary: &'static str,
    handler: fn() -> MethodRouter<Desk>,
) -> Route {
    let (verb, role, load, body) = (Verb::Get, Some(Role::Read), Load::Light, Body::None);
    Route { verb, path, role, load, summary, query: &[], body, answer, handler }
}

/// A route that changes something, for users of that role.
const fn change(
    path: &'static str,
    role: Role,
    answer: Content,
    summary: &'static str,
    handler: fn() -> MethodRouter<Desk>,
) -> Route {
    Route { verb: Verb::Post, role: Some(role), ..read(path, answer, summary, handler) }
}

/// Bytes of a body that is no policy, at most.
const MOST_OF_BODY: usize = 16 << 10;

/// All routes.
pub(crate) static ROUTES: &[Route] = &[
    Route {
        role: None,
        body: Body::Json(&["token"]),
        ..change(
            "/login",
            Role::Read,
            json::<page::Me>(),
            "Begin a session, by a token: sets its cookie",
            || post(page::login).layer(DefaultBodyLimit::max(MOST_OF_BODY)),
        )
    },
    change("/logout", Role::Read, json::<()>(), "End the session", || post(page::logout)),
    read("/me", json::<page::Me>(), "User and role of the session or token", || get(page::me)),
    Route {
        role: Some(Role::Change),
        ..read(
            "/audit",
            json::<Vec<page::AuditEntry>>(),
            "Logins, refusals and changes, the latest first",
            || get(page::audit),
        )
    },
    read("/openapi.json", json::<Any>(), "This description", || get(page::openapi)),
    read("/status", json::<view::Status>(), "State and totals of the gateway", || get(super::status)),
    read("/ports", json::<Vec<view::PortView>>(), "Interfaces, with their counters", || get(super::ports)),
    read("/rules", json::<Vec<view::RuleView>>(), "Rules, with packets and bytes that each decided", || {
        get(super::rules)
    }),
    read("/nat", json::<Vec<view::NatView>>(), "Translations, with their counters", || get(super::nats)),
    read("/classes", json::<Vec<view::ClassView>>(), "Traffic classes, with their counters", || {
        get(super::classes)
    }),
    read("/zones", json::<zone::ZoneMap>(), "Zones, and what the policy lets pass between each two", || {
        get(zone::zones)
    }),
    Route {
        query: &[Parameter { name: "delays", kind: "boolean", about: "With the distributions of delays" }],
        ..read("/queues", json::<Vec<view::QueueView>>(), "Queues, with their delays", || get(queue::queues))
    },
    read("/sas", json::<Vec<AssociationView>>(), "Security associations, without keys", || get(sa::sas)),
    read("/sets", json::<Vec<SetView>>(), "Dynamic sets, with their sources", || get(set::sets)),
    Route {
        load: Load::Heavy,
        query: &[
            SET,
            number("after", "Place to go on from: `next` of the response before"),
            text("near", "Addresses and networks, by commas: only elements with addresses in common"),
        ],
        ..read(
            "/sets/elements",
            json::<Elements>(),
            "Elements of a dynamic set. Where `next` is not null, the list goes on from there",
            || get(set::elements),
        )
    },
    Route {
        query: &[SET],
        ..read("/sets/faults", json::<SetFaults>(), "Lines of a set's list that say no address", || {
            get(set::faults)
        })
    },
    Route {
        body: Body::Type(schema_of::<SetRequest>),
        ..change(
            "/sets/add",
            Role::Operate,
            json::<SetChanged>(),
            "Add elements to a dynamic set, or give them another time to expire",
            || post(set::add).layer(DefaultBodyLimit::max(set::MOST)),
        )
    },
    Route {
        body: Body::Type(schema_of::<SetRequest>),
        ..change(
            "/sets/remove",
            Role::Operate,
            json::<SetChanged>(),
            "Remove elements from a dynamic set",
            || post(set::remove).layer(DefaultBodyLimit::max(set::MOST)),
        )
    },
    Route {
        query: &[SET],
        ..change("/sets/flush", Role::Operate, json::<SetChanged>(), "Empty a dynamic set", || {
            post(set::flush)
        })
    },
    Route {
        load: Load::Heavy,
        ..read(
            "/port-mappings",
            json::<PortMappings>(),
            "Outside ports that hosts, or an operator for them, have asked for",
            || get(port_mapping::mappings),
        )
    },
    Route {
        body: Body::Type(schema_of::<PortMappingRequest>),
        ..change(
            "/port-mappings/add",
            Role::Operate,
            json::<PortMappingView>(),
            "Map an outside port to a host, or change the end of a mapping",
            || post(port_mapping::add).layer(DefaultBodyLimit::max(MOST_OF_BODY)),
        )
    },
    Route {
        body: Body::Type(schema_of::<PortMappingRequest>),
        ..change(
            "/port-mappings/remove",
            Role::Operate,
            json::<PortMappingsRemoved>(),
            "Remove a mapping of an outside port",
            || post(port_mapping::remove).layer(DefaultBodyLimit::max(MOST_OF_BODY)),
        )
    },
    read("/drops", json::<Vec<view::DropView>>(), "Packets dropped and answered, by reason", || get(drops)),
    Route {
        role: Some(Role::Operate),
        load: Load::Heavy,
        query: &[REASON, LAST],
        ..read(
            "/drops/packets",
            json::<Vec<DroppedPacket>>(),
            "The last packets of each reason, the latest first",
            || get(drops::packets),
        )
    },
    Route {
        role: Some(Role::Operate),
        load: Load::Heavy,
        query: &[REASON, LAST],
        ..read("/drops/pcapng", Content::Pcapng, "The last packets of each reason, as a capture", || {
            get(drops::pcapng)
        })
    },
    Route {
        load: Load::Heavy,
        query: &[
            HOST,
            PORT,
            ICMP_ID,
            PROTOCOL,
            INTERFACE,
            RULE,
            NAT,
            STATE,
            number("limit", "Flows listed, at most: 1000, unless said otherwise, and up to 10000"),
            text("after", "Place to go on from: `next` of the response before"),
        ],
        ..read(
            "/flows",
            json::<super::Listed>(),
            "Flows that match all that is said. The search takes a bounded time; where `next` is not null, it goes on from there",
            || get(super::flows),
        )
    },
    Route {
        load: Load::Heavy,
        query: &[HOST, PORT, ICMP_ID, PROTOCOL, INTERFACE, RULE, NAT, STATE],
        ..change(
            "/flows/kill",
            Role::Operate,
            json::<super::Killed>(),
            "End the flows that match all that is said",
            || post(super::kill_some),
        )
    },
    Route {
        load: Load::Heavy,
        query: &[text("packet", "The packet in words: lan tcp 192.168.1.10:50000 > 198.51.100.7:443 syn")],
        ..read("/explain", json::<Any>(), "What the gateway would do with a packet, stage by stage", || {
            get(explain::explain)
        })
    },
    Route {
        load: Load::Heavy,
        ..read("/policy", Content::Policy, "The policy in force", || get(super::policy))
    },
    read("/policy/history", json::<HistoryView>(), "Policies that were put in force", || {
        get(history::history)
    }),
    Route {
        load: Load::Heavy,
        query: &[number("number", "Number of the policy in the history")],
        ..read("/policy/kept", Content::Policy, "A policy of the history", || get(history::kept))
    },
    Route {
        load: Load::Heavy,
        query: &[text("to", "Addresses and networks, by commas: only routes that lead there")],
        ..read(
            "/basis",
            json::<basis::BasisView>(),
            "The policy with Linux's addresses and routes, and the neighbours",
            || get(basis::basis),
        )
    },
    Route {
        load: Load::Heavy,
        body: Body::Policy,
        ..change(
            "/plan",
            Role::Read,
            json::<plan::PlanView>(),
            "Faults of a policy, and what it would change",
            || post(plan::plan).layer(DefaultBodyLimit::disable()),
        )
    },
    Route {
        load: Load::Policy,
        body: Body::Policy,
        query: &[
            number("confirm", "Seconds in which the policy must be confirmed, else it is rolled back"),
            text("comment", "Comment for the history"),
        ],
        ..change("/apply", Role::Change, json::<super::InForce>(), "Put a policy in force", || {
            post(super::apply).layer(DefaultBodyLimit::disable())
        })
    },
    change("/confirm", Role::Change, json::<()>(), "Keep the policy on trial", || post(super::confirm)),
    change("/rollback", Role::Change, json::<()>(), "Drop the policy on trial", || post(super::rollback)),
];

/// Router of all routes, without access control.
pub(crate) fn router(desk: Desk) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        router = router.route(&format!("{BASE}{}", route.path), (route.handler)());
    }
    router
        .fallback(trouble::unknown)
        .method_not_allowed_fallback(trouble::other_method)
        .layer(from_fn(trouble::in_words))
        .with_state(desk)
}
