//! Devices: their qdiscs, classes and filters, after all commands of the source.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::filter;
use super::ledger::Ledger;
use super::source::{Object, Parent, Subject, Verb};
use super::unit::{Handle, number};
use crate::import::note::{NoteKind, Why};

/// A device, with the indices of its objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) classes: Vec<usize>,
    /// Filters in the order of their preferences; of one preference, in that of the source.
    pub(super) filters: Vec<usize>,
    /// Qdiscs by their place.
    qdiscs: BTreeMap<Parent, usize>,
}

impl Device {
    /// Qdisc at a place.
    pub(super) fn qdisc_at(&self, parent: Parent) -> Option<usize> {
        self.qdiscs.get(&parent).copied()
    }

    /// All qdiscs, by their places.
    pub(super) fn qdiscs(&self) -> impl Iterator<Item = usize> {
        self.qdiscs.values().copied()
    }
}

/// First preference that the kernel gives to a filter without one; each further one comes before.
const FIRST_PREFERENCE: u32 = 0xc000;

/// First preference that counts as given by the kernel.
const PREFERENCES: u32 = 0x8000;

/// First handle that the kernel gives to a qdisc without one.
const FIRST_HANDLE: u16 = 0x8001;

/// Device of a source that names none.
const UNNAMED: &str = "interface";

/// Gathers the objects by device, and carries out the commands.
pub(super) fn gather(ledger: &mut Ledger) -> Vec<Device> {
    assign(ledger);
    let mut devices: Vec<Gathering> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut next = FIRST_HANDLE;
    for index in 0..ledger.objects.len() {
        if ledger.is_missing(index) {
            continue;
        }
        let name = ledger.objects[index].device.clone().unwrap_or_default();
        let at = *by_name.entry(name.clone()).or_insert(devices.len());
        if at == devices.len() {
            devices.push(Gathering { name, ..Gathering::default() });
        }
        match ledger.objects[index].subject {
            Subject::Qdisc => devices[at].qdisc(index, ledger, &mut next),
            Subject::Class => devices[at].class(index, ledger),
            Subject::Filter => devices[at].filter(index, ledger),
        }
    }
    devices.into_iter().map(|device| device.close(ledger)).collect()
}

/// Gives listed objects without a device the one that they must be of: a class is of the device that has its qdisc.
fn assign(ledger: &mut Ledger) {
    let mut owners: BTreeSet<(Handle, String)> = BTreeSet::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for object in &ledger.objects {
        let Some(device) = &object.device else { continue };
        names.insert(device.clone());
        if object.subject == Subject::Qdisc {
            let handle = object.handle.map(Handle::qdisc).filter(|handle| handle.major != 0);
            owners.extend(handle.map(|handle| (handle, device.clone())));
        }
    }
    if names.is_empty() && !ledger.objects.is_empty() {
        ledger.note(None, NoteKind::Unnamed { interface: UNNAMED.to_owned() });
        ledger.objects.iter_mut().for_each(|object| object.device = Some(UNNAMED.to_owned()));
        return;
    }
    let only = |handle: Handle| {
        let of = (handle, String::new());
        let mut owners = owners.range(of..).take_while(|(owned, _)| *owned == handle);
        match (owners.next(), owners.next()) {
            (Some((_, device)), None) => Some(device.clone()),
            _ => None,
        }
    };
    for index in 0..ledger.objects.len() {
        let object = &ledger.objects[index];
        if object.device.is_some() {
            continue;
        }
        let device = match (object.subject, object.parent) {
            _ if names.len() == 1 => names.first().cloned(),
            (Subject::Qdisc, Parent::Of(parent)) => only(parent.qdisc()),
            (Subject::Class, _) => object.handle.and_then(|handle| only(handle.qdisc())),
            (Subject::Filter, Parent::Of(parent)) => only(parent.qdisc()),
            (Subject::Filter, Parent::Ingress | Parent::Egress) => only(Handle::INGRESS),
            // `tc filter show dev X parent Y` leaves out the parent, too.
            (Subject::Filter, _) => match filter::target(object) {
                Some(target) => only(target.qdisc()),
                None => only(Handle::INGRESS),
            },
            _ => None,
        };
        match device {
            Some(device) => ledger.objects[index].device = Some(device),
            None => ledger.miss(index, Why::Device),
        }
    }
}

/// A device while the commands of the source are carried out.
#[derive(Default)]
struct Gathering {
    name: String,
    qdiscs: BTreeMap<Parent, usize>,
    /// Places of the qdiscs that have a handle.
    places: HashMap<Handle, Parent>,
    classes: BTreeMap<Handle, usize>,
    filters: BTreeMap<FilterKey, usize>,
    /// Protocol and kind of the filters of each preference.
    lists: BTreeMap<List, (String, String)>,
}

/// A list of filters: place, chain and preference.
type List = (Parent, Option<u32>, u32);

/// A filter: its list, identifier, and position in the source where it has none.
type FilterKey = (List, String, usize);

impl Gathering {
    fn close(self, ledger: &Ledger) -> Device {
        // A listing has classes in the order of a hash table: here it is that of their handles.
        let classes = self.classes.into_values().collect();
        let mut filters: Vec<usize> = self.filters.into_values().collect();
        filters.sort_by_key(|index| (ledger.objects[*index].filter.pref, *index));
        Device { name: self.name, classes, filters, qdiscs: self.qdiscs }
    }

    fn qdisc(&mut self, index: usize, ledger: &mut Ledger, next: &mut u16) {
        let object = &mut ledger.objects[index];
        if matches!(object.kind.as_str(), "ingress" | "clsact") {
            object.parent = Parent::Ingress;
            object.handle = Some(Handle::INGRESS);
        }
        let verb = object.verb;
        if verb != Verb::Delete && object.handle.is_none() {
            object.handle = Some(Handle { major: *next, minor: 0 });
            *next = next.checked_add(1).unwrap_or(FIRST_HANDLE);
        }
        let named = object.handle.filter(|handle| handle.major != 0);
        if object.parent == Parent::Unsaid {
            // A listing has none for what is at rest; a command may name the handle alone.
            let place = named.and_then(|handle| self.places.get(&handle)).copied();
            object.parent = place.unwrap_or(Parent::Unsaid);
        }
        let parent = object.parent;
        let same = self.qdiscs.get(&parent).copied();
        match (verb, same) {
            (Verb::Delete, same) => {
                ledger.implied(index);
                if same.is_some() {
                    self.remove(parent, ledger);
                }
                return;
            }
            (Verb::Add, Some(same)) if !is_default(&ledger.objects[same]) => {
                return ledger.miss(index, Why::Refused("there is a qdisc at this place".to_owned()));
            }
            (Verb::Change, None) => {
                return ledger.miss(index, Why::Refused("there is no such qdisc".to_owned()));
            }
            (Verb::Change, Some(same)) => {
                let words = ledger.objects[index].words.clone();
                ledger.objects[same].words.extend(words);
                return ledger.implied(index);
            }
            // The listing is there twice: as text and as JSON, or again.
            (Verb::Is, Some(same)) => ledger.implied(same),
            (_, Some(_)) => self.remove(parent, ledger),
            (_, None) => {}
        }
        self.qdiscs.insert(parent, index);
        if let Some(handle) = named {
            self.places.insert(handle, parent);
        }
    }

    fn class(&mut self, index: usize, ledger: &mut Ledger) {
        let object = &ledger.objects[index];
        let Some(handle) = object.handle else {
            return ledger.miss(index, Why::Feature("a class without an identifier".to_owned()));
        };
        let (verb, same) = (object.verb, self.classes.get(&handle).copied());
        match (verb, same) {
            (Verb::Delete, _) => {
                ledger.implied(index);
                self.classes.remove(&handle).into_iter().for_each(|gone| ledger.implied(gone));
            }
            (Verb::Add, Some(_)) => ledger.miss(index, Why::Refused("there is such a class".to_owned())),
            (Verb::Change, None) => ledger.miss(index, Why::Refused("there is no such class".to_owned())),
            (_, same) => {
                if let Some(same) = same {
                    // The place in the tree stays where a command does not name it.
                    if ledger.objects[index].parent == Parent::Unsaid {
                        ledger.objects[index].parent = ledger.objects[same].parent;
                    }
                    ledger.implied(same);
                }
                self.classes.insert(handle, index);
            }
        }
    }

    fn filter(&mut self, index: usize, ledger: &mut Ledger) {
        if ledger.objects[index].parent == Parent::Unsaid {
            ledger.objects[index].parent = self.parent_of(index, ledger);
        }
        let object = &mut ledger.objects[index];
        let (parent, chain, verb) = (object.parent, object.filter.chain, object.verb);
        // In JSON the identifiers of most kinds are decimal, in text hexadecimal.
        let plain = |id: &String| number(id).map_or_else(|| id.clone(), |number| number.to_string());
        let id = object.filter.id.as_ref().map(plain);
        let pref = object.filter.pref.filter(|pref| *pref != 0);
        if verb == Verb::Delete {
            let is_meant = |(list, of, _): &FilterKey| {
                (list.0, list.1) == (parent, chain)
                    && pref.is_none_or(|pref| list.2 == pref)
                    && id.as_ref().is_none_or(|id| of == id)
            };
            let gone: Vec<FilterKey> = self.filters.keys().filter(|key| is_meant(key)).cloned().collect();
            for gone in gone.into_iter().filter_map(|key| self.filters.remove(&key)) {
                ledger.implied(gone);
            }
            return ledger.implied(index);
        }
        let of_list =
            (object.filter.protocol.clone().unwrap_or_else(|| "all".to_owned()), object.kind.clone());
        if verb != Verb::Is {
            let all = (parent, chain, PREFERENCES)..=(parent, chain, u32::MAX);
            let lowest = self.lists.range(all).next().map(|((_, _, pref), _)| *pref);
            let given = lowest.map_or(FIRST_PREFERENCE, |lowest| lowest.saturating_sub(1));
            object.filter.pref = Some(pref.unwrap_or(given));
            let list = (parent, chain, pref.unwrap_or(given));
            if let Some(other) = self.lists.get(&list).filter(|other| **other != of_list) {
                let what = format!("preference {} is of protocol {} and {}", list.2, other.0, other.1);
                return ledger.miss(index, Why::Refused(what));
            }
        }
        let list = (parent, chain, object.filter.pref.unwrap_or(0));
        self.lists.insert(list, of_list);
        // Without an identifier each is one of its own.
        let key = match id {
            Some(id) => (list, id, 0),
            None => (list, String::new(), index),
        };
        if verb == Verb::Add && self.filters.contains_key(&key) {
            return ledger.miss(index, Why::Refused("another filter has this identifier".to_owned()));
        }
        if let Some(same) = self.filters.insert(key, index) {
            ledger.implied(same);
        }
    }

    /// Removes a qdisc; with the root of a tree, all that hangs on it.
    fn remove(&mut self, parent: Parent, ledger: &mut Ledger) {
        let Some(gone) = self.qdiscs.remove(&parent) else { return };
        let handle = ledger.objects[gone].handle;
        ledger.implied(gone);
        let is_within = |of: Parent| match (parent, of) {
            (Parent::Root, of) => !matches!(of, Parent::Ingress | Parent::Egress),
            (Parent::Ingress, of) => matches!(of, Parent::Ingress | Parent::Egress),
            (_, Parent::Of(of)) => Some(of.qdisc()) == handle,
            _ => false,
        };
        self.qdiscs.retain(|of, index| keep(!is_within(*of), *index, ledger));
        self.filters.retain(|(list, ..), index| keep(!is_within(list.0), *index, ledger));
        self.lists.retain(|list, _| !is_within(list.0));
        self.classes.retain(|class, index| {
            let is_in = parent == Parent::Root || parent != Parent::Ingress && Some(class.qdisc()) == handle;
            keep(!is_in, *index, ledger)
        });
    }

    /// Parent of a listed filter that does not say: the qdisc of its class, or else that of incoming packets.
    fn parent_of(&self, index: usize, ledger: &Ledger) -> Parent {
        let target = filter::target(&ledger.objects[index]).map(Handle::qdisc);
        match target {
            Some(target) if self.places.contains_key(&target) => Parent::Of(target),
            _ if self.qdiscs.contains_key(&Parent::Ingress) => Parent::Ingress,
            _ => Parent::Root,
        }
    }
}

/// Counts what is not kept as gone.
fn keep(is_kept: bool, index: usize, ledger: &mut Ledger) -> bool {
    if !is_kept {
        ledger.implied(index);
    }
    is_kept
}

/// True for a qdisc that the kernel makes: another takes its place.
fn is_default(object: &Object) -> bool {
    object.handle.is_some_and(|handle| handle.major == 0)
}
