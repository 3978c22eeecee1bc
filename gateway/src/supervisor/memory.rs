//! Flow state kept over a restart: written when the gateway ends, read before its workers start.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use dataplane::flow::SteeringTable;
use dataplane::state::{Cursor, Names};
use tracing::{info, warn};
use wire::Nanos;

use crate::store::{self, BLOCK_ITEMS, Entry, Occasion, Stamp, StoreError, Taken};
use crate::worker::{Memory, Worker, owner_of};

/// Restores the items of the state file to the workers where possible. The gateway starts even if the file is invalid.
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

/// Result of restoring a state file.
struct Recalled {
    /// Number of items restored.
    taken: u64,
    /// Number of items refused.
    refused: u64,
    /// Time since the file was written.
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
            let is_taken = match owner_of(&item, tables, workers.len(), steering) {
                Some(own) => workers.get_mut(own).is_some_and(|worker| worker.remember(&item).is_ok()),
                None => workers.iter_mut().filter_map(|worker| worker.remember(&item).ok()).count() > 0,
            };
            counts[usize::from(!is_taken)] += 1;
        }
    })?;
    let [taken, refused] = counts;
    Ok(Some(Recalled { taken, refused, age }))
}

/// Writes the state of workers that have ended.
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
