//! Qdiscs without classes: queues and droppers.

use wire::{Bytes, Nanos};

use super::Builder;
use crate::import::note::{NoteKind, Why};
use crate::import::tc::option::Options;
use crate::model::{Dropper, Meter, Queue, RedThreshold, Scheduler};

/// Bytes of a packet, where a source does not say: what RED's manual page recommends.
const AVERAGE: u64 = 1_000;

impl Builder<'_> {
    /// Gives a leaf the queue of a qdisc.
    pub(super) fn leaf(&mut self, qdisc: usize, slot: usize, kind: &str) {
        let mut options = Options::of(kind, &self.ledger.objects[qdisc].words);
        let longest = self.longest(slot);
        let mut queue = self.node(slot).clone();
        let read = match kind {
            "pfifo" | "bfifo" | "pfifo_head_drop" => fifo(kind, &mut options, &mut queue, longest),
            "fq_codel" => fq_codel(&mut options, &mut queue),
            "codel" => codel(&mut options, &mut queue).map(|()| queue.limit = queue.limit.or(Some(1_000))),
            "pie" => pie(&mut options, &mut queue),
            "red" => self.red(qdisc, &mut options, &mut queue, longest),
            "sfq" => sfq(&mut options, &mut queue),
            "fq" => self.fq(qdisc, &mut options, &mut queue),
            "noqueue" => Ok(()),
            other => return self.ledger.miss(qdisc, Why::Feature(format!("qdisc {other}"))),
        };
        match read {
            Ok(()) => *self.node(slot) = queue,
            Err(why) => self.ledger.miss(qdisc, why),
        }
        self.rest(qdisc, &options);
        self.ledger.translated(qdisc);
    }

    fn fq(&mut self, qdisc: usize, options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
        queue.scheduler = Some(Scheduler::Fq);
        limit(options, queue)?;
        queue.quantum = bounded_quantum(options)?;
        for key in [
            "flow_limit",
            "buckets",
            "orphan_mask",
            "initial_quantum",
            "refill_delay",
            "low_rate_threshold",
            "timer_slack",
            "horizon",
            "priomap",
            "weights",
            "defrate",
        ] {
            options.word(&[key]);
        }
        options.all(&["pacing", "nopacing", "horizon_drop", "horizon_cap"]);
        self.ledger.note(Some(qdisc), NoteKind::NearestScheduler { what: "fq".to_owned() });
        Ok(())
    }

    fn red(
        &mut self,
        qdisc: usize,
        options: &mut Options,
        queue: &mut Queue,
        longest: u64,
    ) -> Result<(), Why> {
        let limit = options.size(&["limit"])?;
        let given = (options.size(&["min"])?, options.size(&["max"])?);
        let average = options.size(&["avpkt"])?.unwrap_or(AVERAGE).max(1);
        let probability: f64 = match options.word(&["probability"]) {
            Some(word) => word.parse().map_err(|_| Why::Value(format!("probability {word}")))?,
            None => 0.02,
        };
        queue.ecn = options.flag("ecn");
        // Of the average, which here has the weight of the recommendation.
        for key in ["burst", "bandwidth", "ewma", "Plog", "Scell_log"] {
            options.word(&[key]);
        }
        // As tc computes them.
        let max = given.1.filter(|max| *max > 0).or(given.0.map(|min| min.saturating_mul(3)));
        let max = max.or(limit.map(|limit| limit / 4)).unwrap_or(0);
        let min = given.0.filter(|min| *min > 0).unwrap_or(max / 3);
        let packets = |bytes: u64| (bytes / average).clamp(1, u64::from(Queue::MOST_LIMIT)) as u32;
        let (min, max) = (packets(min), packets(max));
        if min >= max {
            return Err(Why::Value(format!("min {min} max {max}, in packets of {average} bytes")));
        }
        let per_mille = (probability * 1_000.0).round().clamp(1.0, 1_000.0) as u16;
        queue.drop = Dropper::Red;
        queue.red = vec![RedThreshold { min, max, per_mille }];
        if let Some(limit) = limit {
            queue.limit_bytes = Some(Bytes(options.within("limit", limit, longest..=Meter::MOST_BURST)));
            queue.limit = Some(packets(limit).max(max));
        }
        self.ledger.note(Some(qdisc), NoteKind::RedPackets { average });
        Ok(())
    }
}

fn limit(options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
    let limit = options.size(&["limit"])?;
    let most = u64::from(Queue::MOST_LIMIT);
    queue.limit = limit.map(|limit| options.within("limit", limit, 1..=most) as u32);
    Ok(())
}

fn quantum(options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
    queue.quantum = bounded_quantum(options)?.filter(|quantum| *quantum != Bytes(1_514));
    Ok(())
}

fn bounded_quantum(options: &mut Options) -> Result<Option<Bytes>, Why> {
    let quantum = options.size(&["quantum"])?;
    let range = Queue::LEAST_QUANTUM.0..=Queue::MOST_QUANTUM.0;
    Ok(quantum.map(|quantum| Bytes(options.within("quantum", quantum, range))))
}

/// Takes the number of queues for flows: here a power of two.
fn flows(options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
    if let Some(flows) = options.size(&["flows"])? {
        let most = u64::from(Queue::MOST_FLOWS);
        queue.flows = options.within("flows", flows, 1..=most).next_power_of_two() as u32;
    }
    Ok(())
}

fn delay(options: &mut Options, key: &str) -> Result<Option<Nanos>, Why> {
    let delay = printed(options.time(&[key])?);
    Ok(delay.map(|delay| options.within_time(key, delay, Nanos(1)..=Queue::MOST_DELAY)))
}

/// A time that tc prints: of three digits, and 4.99 ms for 5.
fn printed(delay: Option<Nanos>) -> Option<Nanos> {
    delay.map(|Nanos(nanos)| match nanos {
        4_990_000..=4_999_999 => Nanos(5_000_000),
        99_900_000..=99_999_999 => Nanos(100_000_000),
        other => Nanos(other),
    })
}

fn fifo(kind: &str, options: &mut Options, queue: &mut Queue, longest: u64) -> Result<(), Why> {
    if kind != "bfifo" {
        limit(options, queue)?;
        if kind == "pfifo_head_drop" {
            return Err(Why::Feature(kind.to_owned()));
        }
        return Ok(());
    }
    let Some(limit) = options.size(&["limit"])? else { return Ok(()) };
    if limit < longest {
        return Err(Why::Value(format!("limit {limit}b, less than a packet of {longest}")));
    }
    queue.limit_bytes = Some(Bytes(options.within("limit", limit, longest..=Meter::MOST_BURST)));
    // As many packets as it has room for.
    queue.limit = Some((limit / 64).clamp(1, 16_384) as u32);
    Ok(())
}

fn codel(options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
    limit(options, queue)?;
    queue.drop = Dropper::Codel;
    queue.target = delay(options, "target")?.filter(|target| target.0 != 5_000_000);
    queue.interval = delay(options, "interval")?.filter(|interval| interval.0 != 100_000_000);
    queue.ecn = options.last(&["ecn", "noecn"]).as_deref() == Some("ecn");
    Ok(())
}

fn fq_codel(options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
    let is_marked = options.last(&["ecn", "noecn"]);
    codel(options, queue)?;
    // A listing says `ecn`; a command that says nothing means it, too.
    queue.ecn = is_marked.as_deref() != Some("noecn");
    queue.limit = queue.limit.or(Some(10_240));
    queue.scheduler = Some(Scheduler::Fq);
    // Bounds of memory, and of work.
    options.word(&["memory_limit"]);
    options.word(&["drop_batch"]);
    flows(options, queue)?;
    quantum(options, queue)
}

fn pie(options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
    limit(options, queue)?;
    queue.limit = queue.limit.or(Some(1_000));
    queue.drop = Dropper::Pie;
    queue.target = delay(options, "target")?.filter(|target| target.0 != 15_000_000);
    queue.ecn = options.last(&["ecn", "noecn"]).as_deref() == Some("ecn");
    options.all(&["nobytemode", "dq_rate_estimator", "no_dq_rate_estimator"]);
    // Those of RFC 8033, and of the kernel.
    let others = [("alpha", options.number(&["alpha"])?, 2), ("beta", options.number(&["beta"])?, 20)];
    for (key, value, usual) in others {
        if let Some(value) = value.filter(|value| *value != usual) {
            return Err(Why::Feature(format!("{key} {value}")));
        }
    }
    let update = options.time(&["tupdate"])?;
    match update.filter(|update| ![15_000_000, 16_000_000].contains(&update.0)) {
        Some(update) => Err(Why::Feature(format!("tupdate {}us", update.0 / 1_000))),
        None => Ok(()),
    }
}

fn sfq(options: &mut Options, queue: &mut Queue) -> Result<(), Why> {
    queue.scheduler = Some(Scheduler::Fq);
    limit(options, queue)?;
    queue.limit = queue.limit.or(Some(127));
    quantum(options, queue)?;
    let divisor = options.size(&["divisor"])?.unwrap_or(1_024);
    let most = u64::from(Queue::MOST_FLOWS);
    queue.flows = options.within("divisor", divisor, 1..=most).next_power_of_two() as u32;
    // Slots for flows and for the packets of each are a bound of memory; flows here do not share one for long.
    options.word(&["depth"]);
    options.word(&["flows"]);
    options.word(&["perturb"]);
    options.word(&["ewma"]);
    options.flag("headdrop");
    Ok(())
}
