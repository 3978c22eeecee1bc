//! Linux's traffic control: what `tc qdisc show`, `tc class show` and `tc filter show` print, as text or as JSON, and the
//! commands of scripts and of `tc -batch`.
//!
//! Qdiscs and classes become trees of queues, filters become classes, policers meters; incoming packets that are redirected to a
//! device of their own (`ifb`) get a tree `from` their interface. Each qdisc, class and filter is accounted for.

use std::collections::BTreeMap;

use super::note::{NoteKind, Why};
use super::{Import, ImportError, Importer, IpVersion, MOST_RULES, Untranslated};
use crate::model::{Overhead, Queue, Shape};

mod action;
mod device;
mod emit;
mod filter;
mod json;
mod ledger;
mod option;
mod script;
mod source;
mod tree;
mod unit;

#[cfg(test)]
mod tests;

use action::Action;
use device::Device;
use emit::{Emit, Side};
use filter::Filter;
use ledger::Ledger;
use source::Parent;
use tree::{Builder, Cake, Entry, Policed, Tree, label};

/// Queues of Linux's traffic control.
pub(super) const IMPORTER: Importer =
    Importer { name: "tc", reads: "what `tc` shows, or its commands", read };

fn read(source: &[u8], _: Option<IpVersion>) -> Result<Import, ImportError> {
    let text = String::from_utf8_lossy(source);
    let Some(source) = source::read(&text, MOST_RULES) else {
        return Err(ImportError::TooMany { most: MOST_RULES });
    };
    let is_strange = |line: &Untranslated| matches!(line.why, Why::Syntax | Why::Script);
    if source.objects.is_empty() && !source.strange.is_empty() && source.strange.iter().all(is_strange) {
        return Err(ImportError::NothingKnown { format: "tc" });
    }
    let mut ledger = Ledger::new(source);
    let devices = device::gather(&mut ledger);
    let mut reader = Reader { ledger, emit: Emit::default(), filters: Vec::new() };
    for device in &devices {
        let filters = reader.filters(device);
        reader.filters.push(filters);
    }
    reader.devices(&devices);
    let Reader { mut ledger, emit, .. } = reader;
    for device in &devices {
        without_qdisc(device, &mut ledger);
    }
    let mut import = Import::default();
    emit.close(&mut ledger, &mut import);
    ledger.close(&mut import);
    Ok(import)
}

/// Reports classes whose qdisc the source lacks.
fn without_qdisc(device: &Device, ledger: &mut Ledger) {
    let handles: Vec<_> = device.qdiscs().filter_map(|qdisc| ledger.objects[qdisc].handle).collect();
    for class in device.classes.iter().copied() {
        let qdisc = ledger.objects[class].handle.map(unit::Handle::qdisc);
        if let Some(qdisc) = qdisc.filter(|qdisc| !handles.contains(qdisc)) {
            ledger.miss(class, Why::Missing(format!("qdisc {qdisc}")));
        }
    }
}

/// Devices that packets are redirected to: by each, the interfaces that the packets came in by.
type Redirects = BTreeMap<String, Vec<usize>>;

struct Reader {
    ledger: Ledger,
    emit: Emit,
    /// Filters of each device, in order.
    filters: Vec<Vec<Filter>>,
}

impl Reader {
    fn filters(&mut self, device: &Device) -> Vec<Filter> {
        let mut filters = Vec::new();
        for index in device.filters.iter().copied() {
            let mut notes = Vec::new();
            let read = filter::read(index, &self.ledger.objects[index], &mut |note| notes.push(note));
            notes.into_iter().for_each(|note| self.ledger.note(Some(index), note));
            match read {
                Ok(Some(filter)) => {
                    if filter.conds.is_empty() {
                        self.ledger.implied(index);
                    }
                    filters.push(filter);
                }
                Ok(None) => self.ledger.implied(index),
                Err(why) => self.ledger.miss(index, why),
            }
        }
        filters
    }

    fn devices(&mut self, devices: &[Device]) {
        let mut redirects = Redirects::new();
        let mut incoming = Vec::new();
        for (at, device) in devices.iter().enumerate() {
            incoming.push(self.incoming(at, device, &mut redirects));
        }
        for (at, (device, policed)) in devices.iter().zip(incoming).enumerate() {
            if redirects.contains_key(&device.name) {
                continue;
            }
            // Devices of that name carry nothing by themselves.
            if device.name.starts_with("ifb") {
                if self.root(device).is_some() {
                    self.not_redirected(device);
                }
                continue;
            }
            let down = redirects.iter().find(|(_, from)| from.contains(&at)).map(|(name, _)| name.clone());
            let down = down.and_then(|name| devices.iter().position(|device| device.name == name));
            self.device(devices, at, down, policed);
        }
    }

    /// Reads the filters of incoming packets: policers, and the redirection of all to another device.
    fn incoming(&mut self, at: usize, device: &Device, redirects: &mut Redirects) -> Vec<Entry> {
        if let Some(ingress) = device.qdisc_at(Parent::Ingress) {
            self.ledger.translated(ingress);
        }
        let mut entries = Vec::new();
        let mut covered: BTreeMap<String, (bool, bool, usize)> = BTreeMap::new();
        for mut filter in self.filters[at].clone() {
            if filter.parent == Parent::Egress {
                self.ledger.miss(filter.object, Why::Feature("egress".to_owned()));
            }
            if filter.parent != Parent::Ingress || filter.conds.is_empty() {
                continue;
            }
            let is_redirect = |action: &Action| matches!(action, Action::Redirect(_));
            if let Some(Action::Redirect(to)) = filter.actions.iter().find(|action| is_redirect(action)) {
                let is_whole = filter.conds.iter().all(super::cond::Cond::is_wide);
                let all =
                    is_whole && filter.conds.iter().all(|cond| cond.dscp.is_all() && cond.protocols.is_all());
                if all {
                    let (v4, v6) = filter.conds[0].families();
                    let of = covered.entry(to.clone()).or_insert((false, false, filter.object));
                    (of.0, of.1) = (of.0 | v4, of.1 | v6);
                    let from = redirects.entry(to.clone()).or_default();
                    if !from.contains(&at) {
                        from.push(at);
                        if from.len() > 1 {
                            let why = format!("one queue of several devices, {to}");
                            self.ledger.miss(filter.object, Why::Feature(why));
                        }
                    }
                    self.ledger.translated(filter.object);
                } else {
                    let why = format!("mirred of some packets to {to}");
                    self.ledger.miss(filter.object, Why::Feature(why));
                    continue;
                }
            }
            let had = filter.actions.len();
            filter.actions.retain(|action| !is_redirect(action));
            if filter.actions.is_empty() && had > 0 {
                continue;
            }
            let mut builder = self.builder(device, &[]);
            // The kernel has taken off the header of the link layer by then.
            let Some(Policed { meter }) = builder.policed(&filter, 0) else { continue };
            let entry = |cond| Entry {
                cond,
                nodes: Vec::new(),
                meter: meter.clone(),
                mark: None,
                object: Some(filter.object),
            };
            entries.extend(filter.conds.iter().cloned().map(entry));
        }
        for (to, (v4, v6, object)) in covered {
            if !(v4 && v6) {
                self.ledger.miss(object, Why::Feature(format!("mirred of one IP version to {to}")));
            }
        }
        // What only lets pass, with nothing after it, has no effect.
        if entries.iter().all(|entry| entry.meter.is_none()) {
            entries.clear();
        }
        entries
    }

    fn not_redirected(&mut self, device: &Device) {
        let all = device.qdiscs().chain(device.classes.iter().copied()).chain(device.filters.iter().copied());
        for index in all.collect::<Vec<_>>() {
            self.ledger.miss(index, Why::NoRedirect(device.name.clone()));
        }
    }

    fn builder<'a>(&'a mut self, device: &'a Device, filters: &'a [Filter]) -> Builder<'a> {
        Builder::new(&mut self.emit.forest, &mut self.ledger, device, filters, &device.name)
    }

    /// Translates a device, and the one that its incoming packets are redirected to.
    fn device(&mut self, devices: &[Device], at: usize, down: Option<usize>, policed: Vec<Entry>) {
        let device = &devices[at];
        let up = self.root(device);
        let down = down.and_then(|down| Some((down, self.root(&devices[down])?)));
        if up.is_none() && down.is_none() && policed.is_empty() {
            return;
        }
        let (interface, name) = self.emit.interface(&device.name, &mut self.ledger);
        let (is_up_shaped, is_down_shaped) = self.shape(device, up, down.map(|(_, root)| root), &name);
        let from = down.filter(|_| !is_down_shaped).map(|(down, root)| {
            let queue = Queue { from: vec![name.clone()], ..Queue::new(&label(&devices[down].name)) };
            self.tree(&devices[down], down, root, queue)
        });
        self.emit.entries(Side::From(interface), policed, from, &mut self.ledger);
        let on = up.filter(|_| !is_up_shaped).map(|root| {
            let queue = Queue { on: vec![name.clone()], ..Queue::new(&label(&name)) };
            self.tree(device, at, root, queue)
        });
        self.emit.entries(Side::On(interface), Vec::new(), on, &mut self.ledger);
    }

    fn tree(&mut self, device: &Device, at: usize, root: usize, queue: Queue) -> Tree {
        let filters = self.filters[at].clone();
        self.builder(device, &filters).tree(root, queue)
    }

    /// Root qdisc of a device; `None` for what Linux gives to any device, and for queues that there is nothing of here.
    fn root(&mut self, device: &Device) -> Option<usize> {
        let root = device.qdisc_at(Parent::Root)?;
        let handle = self.ledger.objects[root].handle.unwrap_or(unit::Handle { major: 0, minor: 0 });
        let kind = self.ledger.objects[root].kind.clone();
        match kind.as_str() {
            "noqueue" => {
                self.ledger.implied(root);
                None
            }
            "pfifo_fast" if handle.major == 0 => {
                self.ledger.implied(root);
                self.ledger.note(None, NoteKind::DefaultQueues { device: device.name.clone() });
                None
            }
            "mq" => self.hardware_queues(device, root, handle),
            _ => Some(root),
        }
    }

    /// Queue that all hardware queues of a device have.
    fn hardware_queues(&mut self, device: &Device, root: usize, handle: unit::Handle) -> Option<usize> {
        let is_child = |qdisc: &usize| matches!(self.ledger.objects[*qdisc].parent, Parent::Of(parent) if parent.qdisc() == handle);
        let children: Vec<usize> = device.qdiscs().filter(is_child).collect();
        let first = children.first().copied();
        let of = |qdisc: usize| (&self.ledger.objects[qdisc].kind, &self.ledger.objects[qdisc].words);
        let is_one = first.is_none_or(|first| children.iter().all(|child| of(*child) == of(first)));
        let is_default = first.is_none_or(|first| self.ledger.objects[first].kind == "pfifo_fast");
        let is_simple = first.is_none_or(|first| !matches!(of(first).0.as_str(), "htb" | "prio" | "tbf"));
        for class in device.classes.iter().copied() {
            if self.ledger.objects[class].handle.map(unit::Handle::qdisc) == Some(handle) {
                self.ledger.implied(class);
            }
        }
        if !is_one || !is_simple {
            self.ledger
                .miss(root, Why::Feature("mq with queues of its own for each hardware queue".to_owned()));
            return None;
        }
        self.ledger.implied(root);
        children.iter().for_each(|child| self.ledger.implied(*child));
        if is_default {
            self.ledger.note(None, NoteKind::DefaultQueues { device: device.name.clone() });
            return None;
        }
        self.ledger.note(None, NoteKind::OneQueue { device: device.name.clone() });
        first
    }

    /// Makes a shape of CAKE on both sides, or on one; true for the sides that it is for.
    fn shape(&mut self, device: &Device, up: Option<usize>, down: Option<usize>, name: &str) -> (bool, bool) {
        let header = self.builder(device, &[]).header();
        let mut side = |root: Option<usize>, is_in: bool| {
            let root = root.filter(|root| {
                let object = &self.ledger.objects[*root];
                object.kind == "cake" && object.sizes.is_empty()
            })?;
            let cake = Cake::read(&mut self.ledger, root, header);
            Some((root, cake.fairness(is_in)?, cake))
        };
        let (up, down) = (side(up, false), side(down, true));
        let is_alike = match (&up, &down) {
            (Some((_, per, cake)), Some((_, other_per, other))) => {
                per == other_per && cake.overhead == other.overhead
            }
            _ => true,
        };
        let down = down.filter(|_| is_alike);
        let Some((_, per, cake)) = up.as_ref().or(down.as_ref()) else { return (false, false) };
        let mut shape = Shape { per: *per, ..Shape::new(name) };
        shape.overhead = Some(cake.overhead).filter(|overhead| *overhead != Overhead::ETHERNET);
        shape.up = up.as_ref().and_then(|(_, _, cake)| cake.rate);
        shape.down = down.as_ref().and_then(|(_, _, cake)| cake.rate);
        for (root, ..) in up.iter().chain(&down) {
            self.ledger.translated(*root);
            if let Some(handle) = self.ledger.objects[*root].handle {
                for class in device.classes.iter().copied() {
                    if self.ledger.objects[class].handle.map(unit::Handle::qdisc) == Some(handle) {
                        self.ledger.implied(class);
                    }
                }
            }
        }
        self.emit.shapes.push(shape);
        (up.is_some(), down.is_some())
    }
}
