//! Names: form, uniqueness, and use of known ones only.

use std::collections::HashMap;

use super::{In, Validator};
use config::{Place, did_you_mean, nearest};

use crate::diagnostic::{Code, Diagnostic};
use crate::expand::written;
use crate::lines::Item;
use crate::model::{
    ANY_ZONE, AddressItem, Addresses, DynamicSet, MulticastRoute, OTHER_ZONE, SELF_ZONE, Wan,
};

/// Longest name, in characters.
const LONGEST: usize = 64;

/// Most items of each kind in a policy.
const MOST: [(&str, usize); 13] = [
    ("interfaces", 4_096),
    ("sets", 65_536),
    ("dynamic sets", DynamicSet::MOST),
    ("routes", 4_194_304),
    ("WANs", Wan::MOST),
    ("policy routes", 65_000),
    ("multicast routes", MulticastRoute::MOST),
    ("cross-connections", 65_536),
    ("rules", 1_000_000),
    ("translations", 65_536),
    ("classes", 65_000),
    ("meters", 65_000),
    ("queues", 1_000_000),
];

impl<'a> Validator<'a> {
    pub(super) fn names(&mut self) {
        let policy = self.policy;
        let counts = [
            policy.interfaces.len(),
            policy.sets.len(),
            policy.dynamic_sets.len(),
            policy.routes.len(),
            policy.wans.len(),
            policy.policy_routes.len(),
            policy.multicast_routes.len(),
            policy.cross_connects.len(),
            policy.rules.len(),
            policy.nats.len(),
            policy.classes.len(),
            policy.meters.len(),
            policy.queues.len(),
        ];
        for ((kind, most), count) in MOST.into_iter().zip(counts) {
            if count > most {
                let message = format!("{count} {kind} are more than {most}");
                self.report(
                    Diagnostic::new(Code::TooMany, message)
                        .hint("put addresses and ports into fewer of them"),
                );
            }
        }
        let named = |make: fn(usize) -> Item, names: Vec<&'a str>| -> Vec<(Item, &'a str)> {
            names.into_iter().enumerate().map(|(index, name)| (make(index), name)).collect()
        };
        let interfaces = policy.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        self.unique("interface", &named(Item::Interface, interfaces));
        let mut sets = named(Item::Set, policy.sets.iter().map(|set| set.name.as_str()).collect());
        let dynamic = policy.dynamic_sets.iter().map(|set| set.name.as_str()).collect();
        sets.extend(named(Item::DynamicSet, dynamic));
        self.unique("set", &sets);
        self.unique("WAN", &named(Item::Wan, policy.wans.iter().map(|wan| wan.name.as_str()).collect()));
        let routes = policy.policy_routes.iter().map(|route| route.name.as_str()).collect();
        self.unique("policy route", &named(Item::PolicyRoute, routes));
        let crosses = policy.cross_connects.iter().map(|cross| cross.name.as_str()).collect();
        self.unique("cross-connection", &named(Item::CrossConnect, crosses));
        self.unique("rule", &named(Item::Rule, policy.rules.iter().map(|rule| rule.name.as_str()).collect()));
        self.unique(
            "translation",
            &named(Item::Nat, policy.nats.iter().map(|nat| nat.name.as_str()).collect()),
        );
        let classes = policy.classes.iter().map(|class| class.name.as_str()).collect();
        self.unique("class", &named(Item::Class, classes));
        self.unique(
            "meter",
            &named(Item::Meter, policy.meters.iter().map(|meter| meter.name.as_str()).collect()),
        );
        let queues = written(policy);
        let queues: Vec<(Item, &str)> =
            queues.iter().map(|written| (written.item, written.queue.name.as_str())).collect();
        self.unique("queue", &queues);
        for (index, interface) in policy.interfaces.iter().enumerate() {
            let item = Item::Interface(index);
            if [SELF_ZONE, ANY_ZONE, OTHER_ZONE].contains(&interface.zone.as_str()) {
                let message = format!("no zone can be named \"{}\"", interface.zone);
                let hint = "\"self\" is the gateway itself, \"any\" every zone, and \"other\" what the policy does not name: choose another name";
                self.wrong(config::Code::ReservedName, item, "zone", message, hint);
            } else if !interface.zone.is_empty() || !self.lines.is_broken(item) {
                self.form("zone", &interface.zone, self.lines.place_of(item, "zone"));
            }
        }
    }

    /// Reports malformed and duplicate names.
    fn unique(&mut self, kind: &str, names: &[(Item, &str)]) {
        let mut first: HashMap<&str, Item> = HashMap::with_capacity(names.len());
        for (item, name) in names {
            if name.is_empty() && self.lines.is_broken(*item) {
                continue;
            }
            self.form(kind, name, self.lines.place(*item));
            if let Some(earlier) = first.insert(name, *item) {
                let diagnostic = Diagnostic::new(
                    config::Code::DuplicateName,
                    format!("two {kind}{} are named \"{name}\"", plural(kind)),
                )
                .hint("names are in every log and counter: give each its own")
                .at(self.lines.place(*item))
                .and("the first", self.lines.place(earlier));
                self.report(diagnostic);
                first.insert(name, earlier);
            }
        }
    }

    pub(super) fn form(&mut self, kind: &str, name: &str, place: Option<Place>) {
        let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_');
        let good = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+".contains(&byte));
        if !starts || !good || name.len() > LONGEST {
            let article = if kind.starts_with('i') { "an" } else { "a" };
            let message = format!("\"{name}\" cannot be the name of {article} {kind}");
            let hint = format!(
                "names have 1 to {LONGEST} letters, digits, - _ . : / or +, and begin with a letter, a digit or _"
            );
            self.report(Diagnostic::new(config::Code::BadName, message).hint(hint).at(place));
        }
    }

    /// Reports zones without interfaces.
    pub(super) fn known_zones(&mut self, item: Item, key: &str, zones: &[String]) {
        for (index, zone) in zones.iter().enumerate() {
            let is_origin = key == "from" && matches!(item, Item::Rule(_));
            if zone != SELF_ZONE && !self.is_zone(zone) && !(zone == OTHER_ZONE && is_origin) {
                let hint = self.zone_hint(zone);
                let message = format!("no interface is in the zone \"{zone}\"");
                self.wrong_in(Code::UnknownZone, In { item, key, index }, message, hint);
            }
        }
    }

    /// True if an interface is in `zone`, or if the zone of some interface could not be read.
    pub(super) fn is_zone(&self, zone: &str) -> bool {
        self.zones.contains(zone) || self.zones.contains("")
    }

    pub(super) fn zone_hint(&self, zone: &str) -> String {
        if zone == ANY_ZONE {
            return "leave the key out where every zone is meant".to_owned();
        }
        if zone == OTHER_ZONE {
            return "\"other\" is what Linux forwards from interfaces that the policy does not name: only `from` of a rule and \
                    the first zone of a default can name it"
                .to_owned();
        }
        let zones = self.policy.zones();
        did_you_mean(zone, zones.iter().copied().chain([SELF_ZONE]), || match zones.is_empty() {
            true => "zones are named by interfaces: add [interface.NAME] with a zone".to_owned(),
            false => format!("the zones are: {}, {SELF_ZONE}", zones.join(", ")),
        })
    }

    /// Reports unknown interfaces.
    pub(super) fn known_interfaces(&mut self, item: Item, key: &str, names: &[String]) {
        for (index, name) in names.iter().enumerate() {
            self.known_interface(In { item, key, index }, name);
        }
    }

    /// True if the interface is known; reports an unknown one.
    pub(super) fn known_interface(&mut self, at: In<'_>, name: &str) -> bool {
        if self.interfaces.contains(name) {
            return true;
        }
        let known = self.policy.interfaces.iter().map(|interface| interface.name.as_str());
        let hint = did_you_mean(name, known, || format!("add [interface.{name}], or name another"));
        self.wrong_in(Code::UnknownInterface, at, format!("there is no interface \"{name}\""), hint);
        false
    }

    /// Reports unknown sets.
    pub(super) fn known_sets(&mut self, item: Item, key: &str, addresses: &Addresses) {
        for (index, address) in addresses.items.iter().enumerate() {
            let AddressItem::Set(name) = address else { continue };
            if self.policy.set(name).is_some() || self.policy.dynamic_set(name).is_some() {
                continue;
            }
            let fixed = self.policy.sets.iter().map(|set| set.name.as_str());
            let dynamic = self.policy.dynamic_sets.iter().map(|set| set.name.as_str());
            let hint = match nearest(name, fixed.chain(dynamic)) {
                Some(nearest) => format!("did you mean \"@{nearest}\"?"),
                None => format!("add it: [set] {name} = [\"192.0.2.1\"]"),
            };
            self.wrong_in(
                Code::UnknownSet,
                In { item, key, index },
                format!("there is no set \"{name}\""),
                hint,
            );
        }
    }
}

/// Ending of the plural of a kind's name.
fn plural(kind: &str) -> &'static str {
    if kind.ends_with('s') { "es" } else { "s" }
}
