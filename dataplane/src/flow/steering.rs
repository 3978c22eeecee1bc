//! The flow steering table, which several workers share: the owner of each flow.
//!
//! Maps the hash of a key to the number of the worker whose [`FlowTable`](super::FlowTable) has a flow with that key.
//! Only some bits of the hash are kept, so the result is a hint: false by chance, or late. The caller must look up the
//! flow itself, and a false hint must cost no more than that look-up.
//!
//! Promises: no locks, no allocation after the start, bounded work per call (two cache lines); a flow published before a
//! packet is sent is found by the worker that receives the answer. An entry for which there is no room is left out and
//! counted ([`SteeringTable::left_out`]); with room for four times as many entries as there can be, this is rare.
//!
//! The table is a multiset: an entry published twice has to be withdrawn twice.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries of a bucket.
const PLACES: usize = 16;

/// Places for each possible entry.
const ROOM: usize = 4;

/// Bits of an entry for the worker's number; the others are bits of the hash.
const WORKER_BITS: u32 = 10;

/// One cache line. An entry is part of the hash, never 0, with the worker's number; 0 is an empty place.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    entries: [AtomicU32; PLACES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

/// See the module.
#[derive(Debug)]
pub struct SteeringTable {
    /// Buckets, an even number: an entry is in one of two neighbours.
    buckets: Box<[Bucket]>,
    workers: u16,
    flows: u32,
    left_out: AtomicU64,
}

/// Reason for refusing to make a steering table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// There are no workers, or more than [`SteeringTable::MOST_WORKERS`].
    #[error("{0} workers: from 1 to {most} can share flows", most = SteeringTable::MOST_WORKERS)]
    Workers(u16),
    /// The system refused this many bytes.
    #[error("no memory for a flow steering table of {0} bytes")]
    NoMemory(usize),
}

impl SteeringTable {
    /// Highest number of workers.
    pub const MOST_WORKERS: u16 = 1 << WORKER_BITS;

    /// A steering table for `workers` workers, each of which has `flows` flows at most.
    ///
    /// # Errors
    /// [`SteeringError`]
    pub fn new(workers: u16, flows: u32) -> Result<SteeringTable, SteeringError> {
        if workers == 0 || workers > SteeringTable::MOST_WORKERS {
            return Err(SteeringError::Workers(workers));
        }
        let entries = 2 * usize::from(workers) * flows.max(1) as usize;
        let count = (entries.saturating_mul(ROOM) / PLACES + 2).next_multiple_of(2);
        let mut buckets = Vec::new();
        let bytes = count.saturating_mul(size_of::<Bucket>());
        buckets.try_reserve_exact(count).map_err(|_| SteeringError::NoMemory(bytes))?;
        buckets.resize_with(count, Bucket::default);
        Ok(SteeringTable { buckets: buckets.into_boxed_slice(), workers, flows, left_out: AtomicU64::new(0) })
    }

    /// Number of workers that share the table.
    pub fn workers(&self) -> u16 {
        self.workers
    }

    /// Capacity in flows of each worker.
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// Entries for which there was no room, so far.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// True if the table has no entry.
    pub fn is_empty(&self) -> bool {
        let mut entries = self.buckets.iter().flat_map(|bucket| &bucket.entries);
        entries.all(|entry| entry.load(Ordering::Relaxed) == 0)
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Notes that a worker has a flow with a key of this hash.
    pub fn publish(&self, hash: u64, worker: u16) {
        let entry = entry(hash, worker);
        for place in self.places(hash) {
            // Release: whoever reads it there sees what was done for the flow before. Read first, as most places that
            // are taken need no write to find that out.
            let is_free = place.load(Ordering::Relaxed) == 0;
            if is_free && place.compare_exchange(0, entry, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Withdraws an entry that was published, once.
    pub fn withdraw(&self, hash: u64, worker: u16) {
        let entry = entry(hash, worker);
        for place in self.places(hash) {
            let is_it = place.load(Ordering::Relaxed) == entry;
            if is_it && place.compare_exchange(entry, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// A worker other than `but` that most likely has a flow with a key of this hash.
    pub fn find(&self, hash: u64, but: u16) -> Option<u16> {
        let wanted = entry(hash, 0);
        self.places(hash)
            .map(|place| place.load(Ordering::Acquire))
            .filter(|found| found & !WORKER == wanted)
            .map(|found| (found & WORKER) as u16)
            .find(|worker| *worker != but && *worker < self.workers)
    }

    /// The worker at which the flows begin that a host opens; `source` is its address as a number, IPv4 in the low 32 bits.
    pub fn home_of_source(&self, source: u128) -> u16 {
        self.scaled(mix(source as u64 ^ mix((source >> 64) as u64)))
    }

    /// The worker that puts the fragments of a datagram in order. Addresses are numbers, as above; `protocol` is that of IPv4
    /// headers, else 0.
    pub fn home_of_datagram(&self, source: u128, destination: u128, id: u32, protocol: u8) -> u16 {
        let halves = [source, destination].map(|end| end as u64 ^ mix((end >> 64) as u64));
        let rest = u64::from(id) << 8 | u64::from(protocol);
        self.scaled(mix(halves[0] ^ mix(halves[1] ^ mix(rest))))
    }

    /// The worker whose shard has the security association of packets that come in with this index. A fixed function, so that nobody has to
    /// be told.
    pub fn owner_of_sa(&self, spi: u32) -> u16 {
        owner_of_sa(spi, self.workers)
    }

    /// Places where an entry may be, in the order in which they are filled.
    fn places(&self, hash: u64) -> impl Iterator<Item = &AtomicU32> {
        let home = (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize;
        let buckets = [home, home ^ 1].into_iter().filter_map(|at| self.buckets.get(at));
        buckets.flat_map(|bucket| &bucket.entries)
    }

    fn scaled(&self, bits: u64) -> u16 {
        scaled(bits, self.workers)
    }
}

/// The worker, of so many, whose shard has the security association of packets that come in with this index.
pub fn owner_of_sa(spi: u32, workers: u16) -> u16 {
    scaled(mix(spi.into()), workers)
}

fn scaled(bits: u64, workers: u16) -> u16 {
    (((bits >> 32) * u64::from(workers)) >> 32) as u16
}

/// Mask of the bits of an entry for the worker's number.
const WORKER: u32 = (1 << WORKER_BITS) - 1;

/// Returns an entry: the low bits of the hash, whose high bits select the bucket, and the worker's number.
fn entry(hash: u64, worker: u16) -> u32 {
    let tag = (hash as u32 & (u32::MAX >> WORKER_BITS)).max(1);
    tag << WORKER_BITS | u32::from(worker)
}

/// One-to-one, each bit of what comes out depends on all that go in: the finalizer of `SplitMix64` (Steele, Lea, Flood,
/// "Fast splittable pseudorandom number generators", OOPSLA 2014). Without a secret, on purpose: after a restart a host's
/// home is what it was, where its mappings are.
pub(crate) const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
