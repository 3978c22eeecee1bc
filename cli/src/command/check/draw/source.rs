//! Origin of a leaf's packets: traffic classes with their meters, and code points.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use policy::model::{Class, ColourAction, Interface, Meter, Queue};
use policy::{Policy, Setting, Settings, dscp_name};

use super::card;
use super::part::{Source, listed};
use crate::screen::{count, number};
use crate::svg::{Card, Kind};

/// Classes of a leaf that are drawn one by one.
const MOST_CLASSES: usize = 6;
/// Leaves that packets of one class may go to by their code points, each with a line of its own.
const MOST_LEAVES: usize = 4;

/// All code points.
const ANY: u64 = u64::MAX;

/// Traffic classes of a policy.
pub(super) struct Classes<'a> {
    list: Vec<Entry<'a>>,
    by_name: HashMap<&'a str, usize>,
    /// Number of classes that name a meter.
    by_meter: HashMap<&'a str, usize>,
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    class: &'a Class,
    meter: Option<&'a Meter>,
    /// Code points that its packets may leave with.
    points: u64,
}

/// Ways of packets to the leaves of a tree.
pub(super) struct Way<'a> {
    /// For each leaf its classes, by place, with the other leaves that their packets may go to.
    by_leaf: HashMap<&'a str, Vec<(usize, Vec<&'a str>)>>,
    pub(super) by_code_point: Option<ByCodePoint>,
}

/// Packets whose code point alone decides.
pub(super) struct ByCodePoint {
    pub(super) card: Card,
    pub(super) leaves: Vec<String>,
}

impl<'a> Classes<'a> {
    pub(super) fn of(policy: &'a Policy) -> Classes<'a> {
        let meters: HashMap<&str, &Meter> =
            policy.meters.iter().map(|meter| (meter.name.as_str(), meter)).collect();
        let entry = |class: &'a Class| {
            let meter = class.meter.as_ref().and_then(|name| meters.get(name.as_str()).copied());
            Entry { class, meter, points: points(class, meter) }
        };
        let mut by_meter = HashMap::new();
        for meter in policy.classes.iter().filter_map(|class| class.meter.as_deref()) {
            *by_meter.entry(meter).or_default() += 1;
        }
        Classes {
            by_meter,
            list: policy.classes.iter().map(entry).collect(),
            by_name: (0..).zip(&policy.classes).map(|(place, class)| (class.name.as_str(), place)).collect(),
        }
    }

    /// True if a class has conditions on interfaces.
    pub(super) fn names_interfaces(&self) -> bool {
        let mut conditions = self.list.iter().map(|entry| &entry.class.conditions);
        conditions.any(|one| !one.in_interfaces.is_empty() || !one.out_interfaces.is_empty())
    }

    /// Key of the number of classes, and of what their meters do.
    pub(super) fn key(&self, classes: &[String]) -> u64 {
        let mut hasher = DefaultHasher::new();
        for entry in classes.iter().filter_map(|name| self.list.get(*self.by_name.get(name.as_str())?)) {
            let settings = entry.meter.map(Settings::settings).unwrap_or_default();
            settings.get(1..).unwrap_or_default().hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Ways to the `leaves` of a tree of packets that come by the interfaces, or leave by them.
    pub(super) fn way(&self, is_from: bool, interfaces: &[&Interface], leaves: &[&'a Queue]) -> Way<'a> {
        let (mut own, mut by_point, mut rest) = (HashMap::new(), [None; 64], None);
        for leaf in leaves {
            own.extend(leaf.classes.iter().map(|class| (class.as_str(), leaf.name.as_str())));
            let points = leaf.phbs.iter().fold(0, |points, phb| points | phb.code_points());
            for (_, entry) in (0..64).zip(&mut by_point).filter(|(point, _)| points >> point & 1 == 1) {
                *entry = Some(leaf.name.as_str());
            }
            if leaf.classes.is_empty() && leaf.phbs.is_empty() {
                rest = Some(leaf.name.as_str());
            }
        }
        let reached = |points: u64| {
            let mut leaves: Vec<&'a str> = Vec::new();
            let taken = (0..64).zip(by_point).filter(|(point, _)| points >> point & 1 == 1);
            for leaf in taken.filter_map(|(_, leaf)| leaf.or(rest)) {
                if !leaves.contains(&leaf) {
                    leaves.push(leaf);
                }
            }
            leaves
        };
        let mut by_leaf: HashMap<&str, Vec<(usize, Vec<&str>)>> = HashMap::new();
        let mut by_own_point: Vec<&str> = Vec::new();
        for (place, entry) in self.list.iter().enumerate() {
            if !may_come(entry.class, is_from, interfaces) {
                continue;
            }
            let name = entry.class.name.as_str();
            if let Some(leaf) = own.get(name) {
                by_leaf.entry(leaf).or_default().push((place, Vec::new()));
                continue;
            }
            match reached(entry.points).as_slice() {
                [first, others @ ..] if entry.points != ANY && others.len() < MOST_LEAVES => {
                    by_leaf.entry(first).or_default().push((place, others.to_vec()));
                }
                [] => {}
                _ => by_own_point.push(name),
            }
        }
        let leaves: Vec<String> = reached(ANY).into_iter().map(str::to_owned).collect();
        let text = match by_own_point.as_slice() {
            [] => vec!["packets of no class".to_owned()],
            names => {
                vec!["packets of no class, and of classes without a queue here:".to_owned(), listed(names)]
            }
        };
        let card = card(Kind::Rest, "by code point", &text);
        Way { by_leaf, by_code_point: (!leaves.is_empty()).then_some(ByCodePoint { card, leaves }) }
    }

    /// Drawing of the classes of leaves that are alike.
    pub(super) fn sources(&self, alike: &[&Queue], way: &Way<'_>) -> Vec<Source> {
        let of = |leaf: &&Queue| way.by_leaf.get(leaf.name.as_str()).map_or(&[][..], Vec::as_slice);
        let all: Vec<(Entry<'_>, &[&str])> = alike
            .iter()
            .flat_map(of)
            .filter_map(|(place, also)| Some((*self.list.get(*place)?, also.as_slice())))
            .collect();
        let one_by_one = if alike.len() > 1 && all.len() > 1 { 0 } else { MOST_CLASSES };
        let split = if all.len() > one_by_one + 1 { one_by_one } else { all.len() };
        let (shown, others) = all.split_at(split);
        let mut sources: Vec<Source> = shown
            .iter()
            .map(|(entry, also)| Source {
                class: class_card(entry.class),
                meter: entry.meter.map(|meter| self.meter_card(meter)),
                also: also.iter().map(|leaf| (*leaf).to_owned()).collect(),
            })
            .collect();
        sources.extend(self.together(others));
        sources
    }

    fn meter_card(&self, meter: &Meter) -> Card {
        meter_card(meter, self.by_meter.get(meter.name.as_str()).copied().unwrap_or(1))
    }

    /// One source for many classes.
    fn together(&self, entries: &[(Entry<'_>, &[&str])]) -> Option<Source> {
        let (first, _) = entries.first()?;
        let names: Vec<&str> = entries.iter().map(|(entry, _)| entry.class.name.as_str()).collect();
        let title = count(names.len() as u64, "class", "classes");
        let class = card(Kind::Class, &title, &[listed(&names)]).stacked();
        let meters: Vec<&Meter> = entries.iter().filter_map(|(entry, _)| entry.meter).collect();
        let names = || meters.iter().map(|meter| meter.name.as_str());
        let meter = match (first.meter, meters.len()) {
            (_, 0) => None,
            (Some(one), metered) if metered == entries.len() && names().all(|name| name == one.name) => {
                Some(self.meter_card(one))
            }
            _ => {
                let mut different: Vec<&str> = names().collect();
                different.sort_unstable();
                different.dedup();
                let title = count(different.len() as u64, "meter", "meters");
                Some(card(Kind::Meter, &title, &[listed(&different)]).stacked())
            }
        };
        let mut also: Vec<String> =
            entries.iter().flat_map(|(_, also)| also.iter().map(|leaf| (*leaf).to_owned())).collect();
        also.sort_unstable();
        also.dedup();
        also.truncate(MOST_LEAVES);
        Some(Source { class, meter, also })
    }
}

/// True if packets of the class can pass the interfaces, in that direction.
fn may_come(class: &Class, is_from: bool, interfaces: &[&Interface]) -> bool {
    let conditions = &class.conditions;
    let (zones, names) = match is_from {
        true => (&conditions.from, &conditions.in_interfaces),
        false => (&conditions.to, &conditions.out_interfaces),
    };
    let is_zone = |interface: &&Interface| zones.is_empty() || zones.contains(&interface.zone);
    let is_named = |interface: &&Interface| names.is_empty() || names.contains(&interface.name);
    // Of a VLAN's packets the conditions name the VLAN, its tree the port.
    interfaces.iter().any(|interface| is_zone(interface) && is_named(interface))
}

/// Code points that packets of a class may leave with.
fn points(class: &Class, meter: Option<&Meter>) -> u64 {
    let bit = |dscp: wire::Dscp| 1_u64 << (dscp.value() % 64);
    let came = match class.conditions.dscp.as_slice() {
        [] => ANY,
        known => known.iter().fold(0, |points, dscp| points | bit(*dscp)),
    };
    let own = class.mark.map_or(came, bit);
    let Some(meter) = meter else { return own };
    meter
        .possible_colours()
        .map(|colour| match meter.actions[colour as usize] {
            ColourAction::Pass | ColourAction::Ecn | ColourAction::EcnOrDrop => own,
            ColourAction::Drop => 0,
            ColourAction::Mark(dscp) => bit(dscp),
        })
        .fold(0, |all, points| all | points)
}

fn class_card(class: &Class) -> Card {
    let settings = class.settings();
    let own = settings.iter().filter(|setting| !["name", "meter"].contains(&setting.key.as_str()));
    let mut text: Vec<String> = own.map(text_of).collect();
    if text.is_empty() {
        text.push("all packets".to_owned());
    }
    card(Kind::Class, &class.name, &text)
}

fn meter_card(meter: &Meter, classes: usize) -> Card {
    let settings = meter.settings();
    let drawn = ["name", "green", "yellow", "red", "kind", "instances"];
    let value =
        |key: &str| settings.iter().find(|setting| setting.key == key).map(|one| one.values.join(", "));
    let kind = value("kind").unwrap_or_else(|| "token-bucket".to_owned());
    let mut text = vec![match classes {
        0 | 1 => kind,
        many => format!("{kind}, one for {many} classes"),
    }];
    let own = settings.iter().filter(|setting| !drawn.contains(&setting.key.as_str()));
    // Rates and bursts in pairs.
    let mut own = own.peekable();
    while let Some(setting) = own.next() {
        let mut line = text_of(setting);
        if setting.key.ends_with("rate") && own.peek().is_some_and(|next| next.key.ends_with("burst")) {
            let burst = own.next().map_or_else(String::new, text_of);
            // In one line where there is room.
            if line.len() + burst.len() < 30 {
                line = format!("{line}, {burst}");
            } else {
                text.push(std::mem::replace(&mut line, burst));
            }
        }
        if setting.key == "per" {
            line = format!("{line}, {} at most", number(meter.instances.into()));
        }
        text.push(line);
    }
    let actions = meter.possible_colours().map(|colour| {
        let action = match meter.actions[colour as usize] {
            ColourAction::Pass => "pass".to_owned(),
            ColourAction::Drop => "drop".to_owned(),
            ColourAction::Ecn => "ecn".to_owned(),
            ColourAction::EcnOrDrop => "ecn-or-drop".to_owned(),
            ColourAction::Mark(dscp) => dscp_name(dscp).map_or(dscp.value().to_string(), str::to_owned),
        };
        format!("{} {action}", colour.name())
    });
    text.push(actions.collect::<Vec<_>>().join(", "));
    card(Kind::Meter, &meter.name, &text)
}

fn text_of(setting: &Setting) -> String {
    format!("{} {}", setting.key, setting.values.join(", "))
}
