//! Dynamic sets that the rules of a policy name.

use super::Emit;
use crate::import::chain::Entry;
use crate::import::cond::{Cond, Place};
use crate::import::conditions::{self, families};
use crate::import::member::Side;
use crate::import::note::{NoteKind, Why};
use crate::model::{AddressItem, AddressRange, Addresses, DynamicSet, Mode, Set};
use wire::Nanos;

/// A set of the source whose elements come and go.
#[derive(Clone, Debug)]
pub(in crate::import) struct FoundSet {
    /// The set, with its name in the policy.
    pub(in crate::import) set: DynamicSet,
    /// Elements that do not expire.
    pub(in crate::import) fixed: Vec<AddressRange>,
    /// Number of elements that expire, which are left out.
    pub(in crate::import) passing: usize,
    /// True if the source has no definition of the set.
    pub(in crate::import) is_assumed: bool,
}

impl FoundSet {
    pub(in crate::import) fn new(name: &str) -> FoundSet {
        FoundSet { set: DynamicSet::new(name), fixed: Vec::new(), passing: 0, is_assumed: false }
    }

    /// Name of the set of elements that do not expire.
    fn fixed_name(&self) -> String {
        format!("{}-elements", self.set.name)
    }
}

/// True if a rule can ask for both ends of a condition: for one list of sets and addresses, or for all but those of a list.
pub(super) fn is_sayable(cond: &Cond) -> bool {
    let (v4, v6) = families(cond);
    [(Side::Source, &cond.source), (Side::Destination, &cond.destination)].into_iter().all(|(side, place)| {
        let mut members = cond.members.of(side);
        let place = conditions::addresses(place, v4, v6);
        let is_open = place.items.is_empty();
        match members.next() {
            None => true,
            Some(one) if one.is_in => is_open && members.next().is_none(),
            Some(_) => members.all(|member| !member.is_in) && (is_open || place.except),
        }
    })
}

impl Emit {
    /// Source and destination of a rule.
    pub(super) fn ends(&mut self, cond: &Cond, v4: bool, v6: bool) -> Result<(Addresses, Addresses), Why> {
        let source = self.end(&cond.source, cond, Side::Source, v4, v6)?;
        let destination = self.end(&cond.destination, cond, Side::Destination, v4, v6)?;
        if !cond.members.is_all() && self.import.policy.mode == Mode::Stateful {
            self.note(None, NoteKind::SetsDecideAnew);
        }
        Ok((source, destination))
    }

    /// Addresses of one end: those of `place`, by the memberships of that side.
    pub(super) fn end(
        &mut self,
        place: &Place,
        cond: &Cond,
        side: Side,
        v4: bool,
        v6: bool,
    ) -> Result<Addresses, Why> {
        let mut members = cond.members.of(side).peekable();
        if members.peek().is_none() {
            return Ok(self.addresses(place, v4, v6));
        }
        let members: Vec<_> = members.cloned().collect();
        let place = self.addresses(place, v4, v6);
        let mut all = match members.as_slice() {
            [one] if one.is_in && place.items.is_empty() => Addresses::default(),
            many if many.iter().all(|member| !member.is_in) && (place.items.is_empty() || place.except) => {
                Addresses { except: true, ..place }
            }
            _ => return Err(Why::Memberships),
        };
        for member in &members {
            let fixed = self.use_set(&member.set, Some(side))?;
            all.items.push(AddressItem::Set(member.set.to_string()));
            all.items.extend(fixed.map(AddressItem::Set));
        }
        Ok(all)
    }

    /// Set and lifetime of an entry's addition.
    pub(super) fn addition(&mut self, entry: &Entry) -> Result<(Option<String>, Option<Nanos>), Why> {
        let Some(addition) = &entry.adds else { return Ok((None, None)) };
        self.use_set(&addition.set, None)?;
        if self.import.policy.mode == Mode::Stateful {
            self.note(None, NoteKind::ConnectionsAdd);
        }
        let timeout = self.import.policy.dynamic_set(&addition.set).and_then(|set| set.timeout);
        Ok((Some(addition.set.to_string()), addition.lasts.filter(|&lasts| Some(lasts) != timeout)))
    }

    /// Puts a set into the policy, for conditions on that side. Returns the name of the set of those elements that do not expire, if there are any.
    fn use_set(&mut self, name: &str, side: Option<Side>) -> Result<Option<String>, Why> {
        let found = self.found.dynamic_sets.iter().find(|found| found.set.name == name);
        let found = found.ok_or_else(|| Why::Missing(format!("@{name}")))?.clone();
        let uses = self.set_uses.iter().filter(|(_, side)| side.is_some()).count();
        let is_new = !self.set_uses.contains(&(name.to_owned(), side));
        if is_new && side.is_some() && uses + self.rates >= DynamicSet::MOST_USES {
            return Err(Why::TooMany);
        }
        if self.import.policy.dynamic_set(name).is_none() {
            self.define(&found)?;
        }
        self.set_uses.insert((name.to_owned(), side));
        Ok(Some(found.fixed_name()).filter(|_| !found.fixed.is_empty()))
    }

    fn define(&mut self, found: &FoundSet) -> Result<(), Why> {
        let policy = &self.import.policy;
        let taken: u32 = policy.dynamic_sets.iter().map(|set| set.size).sum();
        let room = DynamicSet::MOST_SIZE.saturating_sub(taken);
        if room == 0 || policy.dynamic_sets.len() >= DynamicSet::MOST {
            return Err(Why::TooMany);
        }
        let mut set = found.set.clone();
        let name = set.name.clone();
        if set.size > room {
            let (given, becomes) = (format!("size {}", set.size), room.to_string());
            self.note(None, NoteKind::Bounded { given, becomes });
            set.size = room;
        }
        self.import.policy.dynamic_sets.push(set);
        if !found.fixed.is_empty() {
            self.import.policy.sets.push(Set { name: found.fixed_name(), items: found.fixed.clone() });
        }
        if found.passing > 0 {
            self.note(None, NoteKind::PassingElements { set: name.clone(), count: found.passing });
        }
        if found.is_assumed {
            self.note(None, NoteKind::SetAssumed { set: name });
        }
        Ok(())
    }
}
