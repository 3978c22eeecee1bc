//! Controller of a memory that chooses among the commands that wait for its channels, by priority and by banks that are free.
//!
//! Each channel has a queue of high priority, where the memory has one, and beside it queues of the other commands: one, or several over which
//! the banks are dealt out; reads and writes have their own, where they have pins of their own. Whenever the pins are free, the first command
//! of high priority is next, as soon as its bank is free; without one, it is the oldest of those at the heads of the other queues whose
//! bank is free. So a command of high priority starts before all others that have not started, commands to one bank of one priority stay in their
//! order, and the pins never serve two at once. Pins are left free for a command of high priority that waits for its bank.
//!
//! The next command is known only when pins and bank are free, so that who waits for one cannot be told beforehand when it will be done.

use std::collections::VecDeque;

use super::memory::Timing;
use crate::kernel::Ticks;
use crate::mapping::Priority;

/// Controller of a memory.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    /// Lanes of each channel: one for each of its ways.
    lanes: Vec<Lane>,
    /// The most commands that wait in a lane: of normal priority, and of high.
    most: [usize; 2],
    /// Number of commands that have come.
    came: u64,
}

/// Commands that wait for one set of data pins.
#[derive(Clone, Debug)]
struct Lane {
    high: VecDeque<Waiting>,
    queues: Vec<VecDeque<Waiting>>,
    /// Commands in all `queues`.
    normal: usize,
    /// Clusters of engines whose next command has no room, by its priority.
    blocked: [VecDeque<usize>; 2],
    /// Time for which the choice of the next command has been noted.
    due: Option<Ticks>,
}

/// A command that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The reference that it is a part of.
    pub(super) reference: u32,
    pub(super) bank: usize,
    pub(super) timing: Timing,
    /// Time at which it was to be issued.
    pub(super) since: Ticks,
    /// Its place in the order of arrival, which the controller gives it.
    pub(super) number: u64,
}

impl Controller {
    /// A controller of so many channels, with `queues` queues of normal priority and `most` commands of each priority in a lane.
    pub(super) fn new(channels: usize, ways: usize, queues: usize, most: [usize; 2]) -> Controller {
        let lane = Lane {
            high: VecDeque::new(),
            queues: vec![VecDeque::new(); queues.max(1)],
            normal: 0,
            blocked: [VecDeque::new(), VecDeque::new()],
            due: None,
        };
        Controller { lanes: vec![lane; channels * ways], most, came: 0 }
    }

    /// True if a command has room.
    pub(super) fn has_room(&self, lane: usize, priority: Priority) -> bool {
        let of = &self.lanes[lane];
        match priority {
            Priority::Normal => of.normal < self.most[0],
            Priority::High => of.high.len() < self.most[1],
        }
    }

    /// True if no command waits in a lane.
    pub(super) fn is_empty(&self, lane: usize) -> bool {
        let of = &self.lanes[lane];
        of.normal == 0 && of.high.is_empty()
    }

    /// Puts a command behind those of its queue.
    pub(super) fn enter(&mut self, lane: usize, priority: Priority, command: Waiting) {
        self.came += 1;
        let command = Waiting { number: self.came, ..command };
        let of = &mut self.lanes[lane];
        match priority {
            Priority::Normal => {
                of.normal += 1;
                let queue = command.bank % of.queues.len();
                of.queues[queue].push_back(command);
            }
            Priority::High => of.high.push_back(command),
        }
    }

    /// Takes the command that is next at `now`, with its priority; none if pins or banks are not free.
    pub(super) fn pick(
        &mut self,
        lane: usize,
        pins: Ticks,
        banks: &[Ticks],
        now: Ticks,
    ) -> Option<(Waiting, Priority)> {
        if pins > now {
            return None;
        }
        let of = &mut self.lanes[lane];
        let is_free = |command: &Waiting| banks[command.bank] <= now;
        if let Some(first) = of.high.front() {
            let first = is_free(first).then(|| of.high.pop_front()).flatten()?;
            return Some((first, Priority::High));
        }
        let heads = of.queues.iter().enumerate().filter_map(|(queue, of)| Some((queue, of.front()?)));
        let (queue, _) = heads.filter(|(_, first)| is_free(first)).min_by_key(|(_, first)| first.number)?;
        of.normal -= 1;
        Some((of.queues[queue].pop_front()?, Priority::Normal))
    }

    /// The time at which there can be a next command, if none comes until then.
    pub(super) fn next(&self, lane: usize, pins: Ticks, banks: &[Ticks]) -> Option<Ticks> {
        let of = &self.lanes[lane];
        let free = |command: &Waiting| banks[command.bank];
        let bank = match of.high.front() {
            Some(first) => free(first),
            None => of.queues.iter().filter_map(VecDeque::front).map(free).min()?,
        };
        Some(bank.max(pins))
    }

    /// Notes that a cluster waits for room.
    pub(super) fn block(&mut self, lane: usize, priority: Priority, cluster: usize) {
        self.lanes[lane].blocked[priority as usize].push_back(cluster);
    }

    /// The cluster that has waited longest for room which there is now.
    pub(super) fn unblock(&mut self, lane: usize, priority: Priority) -> Option<usize> {
        self.lanes[lane].blocked[priority as usize].pop_front()
    }

    /// Notes the time of the next choice: true if none is noted for that time or before.
    pub(super) fn expect(&mut self, lane: usize, at: Ticks) -> bool {
        let due = &mut self.lanes[lane].due;
        let is_new = due.is_none_or(|due| at < due);
        if is_new {
            *due = Some(at);
        }
        is_new
    }

    /// The time that was noted has come.
    pub(super) fn reach(&mut self, lane: usize, now: Ticks) {
        let due = &mut self.lanes[lane].due;
        if due.is_some_and(|due| due <= now) {
            *due = None;
        }
    }
}
