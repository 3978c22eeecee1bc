//! A gateway whose frames lie in memory, without I/O: what benchmarks of the pipeline have in common.

use dataplane::egress::Next;
use dataplane::hop::Resolve;
use dataplane::nat::Share;
use dataplane::replay::SEED;
use dataplane::shard::{Setup, ShardError};
use dataplane::stage::Cx;
use dataplane::{Pipeline, Shard, Tables};
use lookup::fib::FibError;
use policy::Policy;
use tally::Tally;
use wire::{BATCH, Batch, Frame, Nanos, Pool, PoolError, PortId};

/// Reason that there is no measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The policy is wrong, which it must not be.
    #[error("the scenario's policy is wrong: {0}")]
    Policy(String),
    /// The shard could not be made.
    #[error(transparent)]
    Shard(ShardError),
    /// The frame pool could not be made.
    #[error(transparent)]
    Pool(PoolError),
    /// The routing table could not be built.
    #[error(transparent)]
    Fib(FibError),
    /// Not every frame was forwarded: the rate would be that of another path.
    #[error("{0} frames were not forwarded")]
    Lost(u64),
    /// The system refuses a file descriptor.
    #[error("no file descriptor: {0}")]
    System(std::io::Error),
}

/// Slots of the pool.
const SLOTS: u32 = 1_024;

/// Time between two batches.
const STEP: Nanos = Nanos(3_000);

/// A frame of a load.
pub(super) trait Arrival {
    /// Its bytes.
    fn bytes(&self) -> &[u8];

    /// The port it comes in by.
    fn ingress(&self) -> PortId;
}

/// Reads a policy that a benchmark has written.
pub(super) fn policy(text: &str) -> Result<Policy, BenchError> {
    let checked = policy::check(text, "bench");
    checked.policy.ok_or_else(|| {
        let first = checked.diagnostics.first();
        BenchError::Policy(first.map_or_else(String::new, |found| found.message.clone()))
    })
}

/// One shard of a gateway, its frames, and time.
pub(super) struct Gateway {
    pub(super) shard: Shard,
    tables: Tables,
    pipeline: Pipeline,
    pool: Pool,
    batch: Batch,
    ended: Vec<Frame>,
    now: Nanos,
}

impl Gateway {
    pub(super) fn new(policy: &Policy) -> Result<Gateway, BenchError> {
        let tables = Tables::compile(policy, 1).map_err(|error| BenchError::Policy(error.to_string()))?;
        let now = Nanos::from_secs(1_000);
        let setup = Setup { seed: SEED, now, resolve: Resolve::Assume, share: Share::WHOLE };
        Ok(Gateway {
            shard: Shard::new(&tables, setup).map_err(BenchError::Shard)?,
            tables,
            pipeline: Pipeline::default(),
            pool: Pool::new(SLOTS, 2_048).map_err(BenchError::Pool)?,
            batch: Batch::new(),
            ended: Vec::with_capacity(SLOTS as usize),
            now,
        })
    }

    /// Takes frames through once, in batches of 64: they are copied into slots (that is the reception), taken through the pipeline
    /// and out of the queues, and their slots given back. `sent` sees what comes out.
    #[inline(always)]
    pub(super) fn pass<T: Tally + 'static>(
        &mut self,
        load: &[impl Arrival],
        tally: &mut T,
        sent: &mut impl FnMut(&Frame),
    ) {
        for chunk in load.chunks(BATCH) {
            self.now += STEP;
            let (now, mut ingress) = (self.now, chunk.iter().map(Arrival::ingress));
            self.batch.receive(&mut self.pool, chunk.iter().map(Arrival::bytes), |frame| {
                frame.meta.ingress = ingress.next().unwrap_or_default();
                frame.meta.received = now;
            });
            let mut cx = Cx { tables: &self.tables, shard: &mut self.shard, pool: &mut self.pool, tally };
            self.pipeline.run(&mut self.batch, &mut self.ended, &mut cx);
            self.pool.put_all(self.ended.drain(..));
            for port in (0..self.shard.egress.ports() as u16).map(PortId) {
                self.shard.dequeue_burst(port, self.now, &mut self.batch);
                self.batch.iter().for_each(&mut *sent);
                self.pool.put_all(self.batch.drain());
                while let Next::Frame(frame, _) = self.shard.next(port, self.now) {
                    sent(&frame);
                    self.pool.put(frame);
                }
            }
        }
    }

    pub(super) fn check_all_passed(&self) -> Result<(), BenchError> {
        let counters = &self.shard.counters;
        match counters.received.frames - counters.forwarded() {
            0 => Ok(()),
            lost => Err(BenchError::Lost(lost)),
        }
    }
}
