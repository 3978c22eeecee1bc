//! What is remembered over a restart: written when the gateway ends, read before its workers begin.

use std::io;
use std::path::Path;

use dataplane::state::{Cursor, Names};
use tracing::{info, warn};

use crate::store::{self, BLOCK_ITEMS, Entry, StoreError};
use crate::worker::{Memory, Worker};

/// Gives the workers what is in the file, each what it can be. Whatever is wrong with it, the gateway begins.
pub(super) fn recall(path: &Path, tables: &dataplane::Tables, workers: &mut [Worker]) {
    if let Err(error) = store::discard_unfinished(path) {
        warn!("{}: what was not written to its end cannot be removed: {error}", path.display());
    }
    match read(path, tables, workers) {
        Ok(None) => {}
        Ok(Some([taken, refused])) => info!(taken, refused, "flows of before the restart taken over"),
        Err(error) => warn!("{}: {error}; beginning without flows", path.display()),
    }
}

fn read(
    path: &Path,
    tables: &dataplane::Tables,
    workers: &mut [Worker],
) -> Result<Option<[u64; 2]>, StoreError> {
    let Some(file) = store::open(path)? else { return Ok(None) };
    let mut places = Names::default().places_in(tables);
    let mut counts = [0, 0];
    store::read(file, |entry| match entry {
        Entry::Names(names) => places = names.places_in(tables),
        Entry::Item(item) => {
            let item = places.moved(&item);
            // A flow whose translation has a port is its worker's; the others refuse it.
            let is_taken = workers.iter_mut().any(|worker| worker.remember(&item).is_ok());
            counts[usize::from(!is_taken)] += 1;
        }
    })?;
    Ok(Some(counts))
}

/// Writes what workers remembered when they ended.
pub(super) fn keep(path: &Path, memories: &[Memory]) {
    let written =
        store::write_file(path, |writer| memories.iter().try_for_each(|memory| write(writer, memory)));
    match written {
        Ok(items) => info!(items, "flows kept in {}", path.display()),
        Err(error) => warn!("{}: {error}; flows are lost", path.display()),
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
