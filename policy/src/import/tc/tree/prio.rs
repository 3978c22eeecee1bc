//! Priority bands, in strict order.
//!
//! Packets come to a band by filters, else by their priority. Of forwarded packets Linux takes that from the type of service:
//! two bits of it (`rt_tos2priority`), as RFC 1349 had them.

use super::{Builder, Entry, Policed};
use crate::import::cond::Cond;
use crate::import::note::{NoteKind, Why};
use crate::import::range::ByteSet;
use crate::import::tc::filter::Filter;
use crate::import::tc::option::Options;
use crate::import::tc::source::Parent;
use crate::import::tc::unit::{Handle, number};
use crate::model::{Queue, Scheduler};

/// Band of each priority, if a source does not say.
const BANDS: [usize; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

/// Most bands.
const MOST: i64 = 16;

impl Builder<'_> {
    pub(super) fn prio(&mut self, qdisc: usize, slot: usize) -> Vec<Entry> {
        let object = &self.ledger.objects[qdisc];
        let handle = object.handle.unwrap_or(Handle { major: 0, minor: 0 });
        let is_root = object.parent == Parent::Root;
        let mut options = Options::of("prio", &object.words);
        let bands = options.number(&["bands"]);
        let bands = self.taken(qdisc, bands).unwrap_or(3).clamp(1, MOST) as usize;
        let map = options.word(&["priomap"]);
        let mut list = BANDS.map(|band| band.min(bands - 1));
        for (band, word) in list.iter_mut().zip(map.as_deref().unwrap_or_default().split_whitespace()) {
            *band = number(word).map_or(0, |number| number as usize).min(bands - 1);
        }
        // Of the bits of the old type of service: normal, bulk, interactive, and both.
        let bands_of_bits = [list[0], list[2], list[6], list[4]];
        options.flag("multiqueue");
        if let Some(word) = options.word(&["multiqueue:"]).filter(|word| word != "off") {
            self.ledger.miss(qdisc, Why::Feature(format!("multiqueue: {word}")));
        }
        self.rest(qdisc, &options);
        self.ledger.translated(qdisc);
        self.imply_classes(handle);

        let filters: Vec<Filter> = self
            .filters
            .iter()
            .filter(|filter| match filter.parent {
                Parent::Of(of) => of == handle,
                Parent::Root => is_root,
                _ => false,
            })
            .cloned()
            .collect();
        // Bands that packets may come to; no other is made.
        let band_of = |filter: &Filter| {
            let target = filter.target.filter(|target| target.major == handle.major || target.major == 0)?;
            usize::from(target.minor).checked_sub(1).filter(|band| *band < bands)
        };
        let mut used = vec![false; bands];
        for band in filters.iter().filter_map(band_of).chain(bands_of_bits) {
            used[band] = true;
        }
        let mut inner: Vec<Vec<Entry>> = vec![Vec::new(); bands];
        let used: Vec<usize> = (0..bands).filter(|band| used[*band]).collect();
        self.bands(qdisc, handle, slot, &used, &mut inner);
        let to_band = |band: usize| inner[band].clone();

        let mut out = Vec::new();
        for filter in &filters {
            let Some(Policed { meter }) = self.policed(filter, self.header) else { continue };
            // One that leads nowhere leads to what the priority would (`prio_classify`).
            let leaf = match band_of(filter) {
                Some(band) => to_band(band),
                None => {
                    if let Some(target) = filter.target {
                        self.ledger.miss(filter.object, Why::Missing(target.to_string()));
                        continue;
                    }
                    to_band(list[0])
                }
            };
            for cond in &filter.conds {
                self.push(&mut out, filter, cond, &leaf, meter.as_deref());
            }
        }
        let most = bands_of_bits[0];
        let mut is_by_point = false;
        for band in used.iter().copied().filter(|band| *band != most) {
            let dscp: ByteSet =
                (0..64_u8).filter(|point| bands_of_bits[usize::from(point >> 1 & 3)] == band).collect();
            if dscp.is_empty() {
                continue;
            }
            is_by_point = true;
            let cond = Cond { dscp, ..Cond::default() };
            for entry in to_band(band) {
                out.extend(cond.and(&entry.cond).map(|cond| Entry { cond, ..entry }));
            }
        }
        if is_by_point {
            self.ledger.note(Some(qdisc), NoteKind::Priomap);
        }
        out.extend(to_band(most));
        out
    }

    /// Makes the nodes of bands in a strict node, which has eight at most: the last holds the rest.
    fn bands(
        &mut self,
        qdisc: usize,
        handle: Handle,
        slot: usize,
        bands: &[usize],
        inner: &mut [Vec<Entry>],
    ) {
        if let [only] = bands {
            inner[*only] = self.place_at(Handle { minor: *only as u16 + 1, ..handle }, slot);
            return;
        }
        self.node(slot).scheduler = Some(Scheduler::Strict);
        let most = usize::from(Queue::PRIORITIES);
        let (first, rest) = match bands.len() > most {
            true => bands.split_at(most - 1),
            false => (bands, &[][..]),
        };
        for band in first.iter().copied() {
            let class = Handle { minor: band as u16 + 1, ..handle };
            inner[band] = match self.child(slot, &class.to_string(), qdisc) {
                Some(node) => self.place_at(class, node),
                None => vec![Entry::all(slot)],
            };
        }
        if !rest.is_empty() {
            match self.child(slot, &format!("{handle}others"), qdisc) {
                Some(node) => self.bands(qdisc, handle, node, rest, inner),
                None => rest.iter().for_each(|band| inner[*band] = vec![Entry::all(slot)]),
            }
        }
    }
}
