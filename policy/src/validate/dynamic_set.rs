//! Dynamic sets, conditions that ask for them, and rules that add to them.

use std::collections::BTreeSet;

use config::nearest;
use wire::Nanos;

use super::{In, Validator};
use crate::diagnostic::Code;
use crate::lines::Item;
use crate::model::{AddressItem, Addresses, Conditions, DynamicSet, Rule, SetSource};

impl<'a> Validator<'a> {
    pub(super) fn dynamic_sets(&mut self) {
        let policy = self.policy;
        let mut all = 0;
        for (index, set) in policy.dynamic_sets.iter().enumerate() {
            let item = Item::DynamicSet(index);
            let before = all;
            all += if set.size > DynamicSet::MOST_SIZE { 0 } else { u64::from(set.size) };
            let most = u64::from(DynamicSet::MOST_SIZE);
            if before <= most && all > most {
                let message =
                    format!("the sets up to this one have room for {all} elements, more than {most}");
                let hint = "their memory is taken at start: write the most elements at a time";
                self.wrong(Code::BadSet, item, "size", message, hint);
            }
            if !self.lines.is_broken(item) {
                self.dynamic_set(item, set);
            }
        }
        self.uses_of_sets();
    }

    fn dynamic_set(&mut self, item: Item, set: &DynamicSet) {
        if set.size == 0 || set.size > DynamicSet::MOST_SIZE {
            let message =
                format!("a set has room for 1 to {} elements, not {}", DynamicSet::MOST_SIZE, set.size);
            let hint = "its memory is taken at start: write the most elements at a time";
            self.wrong(Code::BadSet, item, "size", message, hint);
        }
        if set.timeout == Some(Nanos(0)) {
            let message = "with `timeout` = 0 no element would stay".to_owned();
            self.wrong(Code::BadSet, item, "timeout", message, "leave the key out for elements that stay");
        }
        if set.timeout.is_some() && set.source != SetSource::Rules {
            let message = "`timeout` is for elements that rules or requests add".to_owned();
            let hint = "an element from a file or URL stays as long as it is there: leave the key out";
            self.wrong(Code::BadSet, item, "timeout", message, hint);
        }
        match &set.source {
            SetSource::Rules => {}
            SetSource::File(file) => {
                if file.is_empty() {
                    let message = "the path of the set's file is empty".to_owned();
                    self.wrong(Code::BadSet, item, "file", message, "write \"/etc/wirerate/scanners.txt\"");
                }
            }
            SetSource::Url { url, refresh } => {
                let rest = ["https://", "http://"].into_iter().find_map(|scheme| url.strip_prefix(scheme));
                let is_url = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
                    && !url.chars().any(|char| char.is_whitespace() || char.is_control());
                if !is_url {
                    let message = format!("\"{url}\" is not a URL to fetch a set from");
                    let hint = "write it as \"https://example.net/drop.txt\"";
                    self.wrong(Code::BadSet, item, "url", message, hint);
                }
                if *refresh < DynamicSet::LEAST_REFRESH {
                    let message = "a set is fetched once a minute at most".to_owned();
                    self.wrong(Code::BadSet, item, "refresh", message, "write refresh = \"1h\"");
                }
            }
        }
    }

    /// Reports uses of dynamic sets past those that there are bits for.
    fn uses_of_sets(&mut self) {
        let policy = self.policy;
        let ends = |conditions: &'a Conditions| [&conditions.source, &conditions.destination];
        let rules = policy.rules.iter().enumerate().map(|(at, one)| (Item::Rule(at), ends(&one.conditions)));
        let classes = policy.classes.iter().enumerate();
        let classes = classes.map(|(at, one)| (Item::Class(at), ends(&one.conditions)));
        let nats = policy.nats.iter().enumerate();
        let nats = nats.map(|(at, one)| (Item::Nat(at), [&one.source, &one.destination]));
        let routes = policy.policy_routes.iter().enumerate();
        let routes = routes.map(|(at, one)| (Item::PolicyRoute(at), ends(&one.conditions)));
        // A rule by whose rate packets go on to the next rules takes as much as a set.
        let passages = policy.rules.iter().filter(|rule| rule.matches_by_rate()).count();
        if passages > DynamicSet::MOST_USES {
            let most = DynamicSet::MOST_USES;
            let message = format!("packets go on to the next rules by the rates of more than {most} rules");
            let hint = "let some of them accept at a rate, without `excess`";
            let place = policy.rules.iter().rposition(Rule::matches_by_rate).unwrap_or(0);
            return self.wrong(Code::TooMany, Item::Rule(place), "rate", message, hint);
        }
        let mut known = BTreeSet::new();
        for (item, ends) in rules.chain(classes).chain(nats).chain(routes) {
            for (key, addresses) in ["source", "destination"].into_iter().zip(ends) {
                for (index, address) in addresses.items.iter().enumerate() {
                    let AddressItem::Set(name) = address else { continue };
                    if policy.dynamic_set(name).is_none() {
                        continue;
                    }
                    known.insert((name.as_str(), key));
                    if known.len() + passages > DynamicSet::MOST_USES {
                        let most = DynamicSet::MOST_USES - passages;
                        let message = format!(
                            "more than {most} dynamic sets are asked for, as sources and as destinations"
                        );
                        let hint = "put the elements of several sets into one";
                        return self.wrong_in(Code::TooMany, In { item, key, index }, message, hint);
                    }
                }
            }
        }
    }

    /// Reports dynamic sets among addresses that have to be known beforehand; true where there are some.
    pub(super) fn has_dynamic_sets(
        &mut self,
        item: Item,
        key: &str,
        addresses: &Addresses,
        hint: &str,
    ) -> bool {
        let mut found = false;
        for (index, address) in addresses.items.iter().enumerate() {
            let AddressItem::Set(name) = address else { continue };
            if self.policy.dynamic_set(name).is_some() {
                let message = format!("the dynamic set \"{name}\" cannot stand here");
                self.wrong_in(Code::DynamicSet, In { item, key, index }, message, hint);
                found = true;
            }
        }
        found
    }

    /// True if a dynamic set is among addresses.
    pub(super) fn names_dynamic(&self, addresses: &Addresses) -> bool {
        let is_dynamic = |item: &AddressItem| matches!(item, AddressItem::Set(name) if self.policy.dynamic_set(name).is_some());
        addresses.items.iter().any(is_dynamic)
    }

    /// Reports an addition to a set that there is none of or that others fill, and a lifetime without an addition.
    pub(super) fn adds_source(&mut self, item: Item, rule: &Rule) {
        let Some(name) = &rule.add_source else {
            if rule.add_for.is_some() {
                let message = "`for` is the lifetime of an element that the rule adds".to_owned();
                self.wrong(Code::BadSet, item, "for", message, "add add-source = \"@name\", or leave it out");
            }
            return;
        };
        match self.policy.dynamic_set(name) {
            None if self.policy.set(name).is_some() => {
                let message = format!("the elements of the set \"{name}\" are the policy's own");
                let hint = format!("make it [dynamic-set.{name}], or name another");
                self.wrong(Code::BadSet, item, "add-source", message, hint);
            }
            None => {
                let names = self.policy.dynamic_sets.iter().map(|set| set.name.as_str());
                let hint = match nearest(name, names) {
                    Some(nearest) => format!("did you mean \"@{nearest}\"?"),
                    None => format!("add [dynamic-set.{name}]"),
                };
                let message = format!("there is no dynamic set \"{name}\"");
                self.wrong(Code::UnknownSet, item, "add-source", message, hint);
            }
            Some(set) if set.source != SetSource::Rules => {
                let message = format!("the set \"{name}\" is filled from elsewhere");
                let hint = "a set with `file` or `url` has these elements alone: add to another";
                self.wrong(Code::BadSet, item, "add-source", message, hint);
            }
            Some(_) => {}
        }
        if rule.add_for == Some(Nanos(0)) {
            let message = "with `for` = 0 the element would be gone at once".to_owned();
            self.wrong(Code::BadSet, item, "for", message, "leave the key out for the set's own timeout");
        }
    }
}
