//! What is remembered over a restart: written when the gateway ends, read before its workers begin.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use dataplane::flow::SteeringTable;
use dataplane::nat::Share;
use dataplane::state::{Cursor, Item, Names};
use tracing::{info, warn};
use wire::Nanos;

use crate::store::{self, BLOCK_ITEMS, Entry, Occasion, Stamp, StoreError, Taken};
use crate::worker::{Memory, Worker};

/// Gives the workers what is in the file, each what it can be. Whatever is wrong with it, the gateway begins.
pub(super) fn recall(
    path: &Path,
    tables: &dataplane::Tables,
    workers: &mut [Worker],
    steering: Option<&SteeringTable>,
) {
    if let Err(error) = store::discard_unfinished(path) {
        warn!("{}: incomplete state file cannot be removed: {error}", path.display());
    }
    match read(path, tables, workers, steering) {
        Ok(None) => {}
        Ok(Some(Recalled { taken, refused, age })) => {
            info!(taken, refused, age_seconds = age.as_secs_f64(), "flow state restored");
        }
        Err(error) => {
            warn!("{}: state file ignored, starting with an empty flow table: {error}", path.display())
        }
    }
}

/// What came of a state file.
struct Recalled {
    /// Items that were taken in.
    taken: u64,
    /// Items that could not be.
    refused: u64,
    /// Time since it was written.
    age: Nanos,
}

fn read(
    path: &Path,
    tables: &dataplane::Tables,
    workers: &mut [Worker],
    steering: Option<&SteeringTable>,
) -> Result<Option<Recalled>, StoreError> {
    let Some(Taken { file, age }) = store::take(path, &Stamp::now(Occasion::End))? else { return Ok(None) };
    let mut places = Names::default().places_in(tables);
    let mut counts = [0, 0];
    store::read(file, |entry| match entry {
        Entry::Stamp(_) => {}
        Entry::Names(names) => places = names.places_in(tables),
        Entry::Item(item) => {
            let item = places.moved(&item).aged(age);
            let is_taken = match worker_of(&item, workers.len(), steering) {
                Some(own) => workers.get_mut(own).is_some_and(|worker| worker.remember(&item).is_ok()),
                None => workers.iter_mut().filter_map(|worker| worker.remember(&item).ok()).count() > 0,
            };
            counts[usize::from(!is_taken)] += 1;
        }
    })?;
    let [taken, refused] = counts;
    Ok(Some(Recalled { taken, refused, age }))
}

/// The worker that goes on with an item; `None` where all of them do. A flow whose translation has a port is the
/// worker's that hands out that port, any other one, and token debts of a source, is at home with its source.
pub(crate) fn worker_of(item: &Item, workers: usize, steering: Option<&SteeringTable>) -> Option<usize> {
    let home =
        |source: IpAddr| steering.map_or(0, |steering| usize::from(steering.home_of_source(source.into())));
    match item {
        Item::Flow(flow) => Some(match flow.mapping.or(flow.inward) {
            Some(mapping) => usize::from(Share::owner(mapping.outside.port, workers as u16)),
            None => home(flow.original.source),
        }),
        Item::Debt(debt) => debt.source.map(home),
        Item::Own(_) => None,
    }
}

/// Writes what workers remembered when they ended.
pub(super) fn keep(path: &Path, memories: &[Memory]) {
    if let Some(directory) = path.parent() {
        // Where it cannot be made, writing says so.
        let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    }
    let stamp = Stamp::now(Occasion::End);
    let written =
        store::write_file(path, stamp, |writer| memories.iter().try_for_each(|memory| write(writer, memory)));
    match written {
        Ok(items) => info!(items, "flow state saved to {}", path.display()),
        Err(error) => warn!("{}: flow state not saved: {error}", path.display()),
    }
}

fn write<W: io::Write>(writer: &mut store::Writer<W>, memory: &Memory) -> io::Result<()> {
    let Memory { tables, shard, now } = memory;
    writer.names(Names::of(tables))?;
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next {
        let mut items = Vec::with_capacity(BLOCK_ITEMS);
        next = shard.export(tables, *now, cursor, BLOCK_ITEMS as u32, |item| items.push(item));
        writer.items(items)?;
    }
    Ok(())
}
