use tally::{Count, Op, Reference, Region, Tally, Ticket};

use super::{Counting, Ledger};
use crate::machine::{Machine, Table};
use crate::plan::Optimisation;
use crate::word::Word;

/// Account of some code: instructions executed, size of the code, counts.
struct Came {
    executed: u64,
    size: u32,
    count: Count,
}

/// Runs code on a machine of its own.
fn run(optimisation: Optimisation, code: impl for<'a> FnOnce(Counting<'a>)) -> Came {
    let mut count = Count::default();
    let ledger = Ledger::new(optimisation.plan(), &mut count);
    code(ledger.machine());
    let size = ledger.code_size();
    Came { executed: count.executed_total(), size, count }
}

/// Generic code, as the algorithms are: one exclusive or.
fn mix<W: Word>(a: W, b: W) -> W {
    a ^ b
}

/// The place that an operator is charged to is where it stands in generic code, not in this module or the core
/// library. The size of code depends on it.
#[test]
fn an_operator_stands_where_it_is_written() {
    let twice = run(Optimisation::Raw, |machine| {
        let word = machine.constant(1);
        let _ = [mix(word, word), mix(word, word)];
    });
    assert_eq!((twice.executed, twice.size), (3, 2));
    let apart = run(Optimisation::Raw, |machine| {
        let word = machine.constant(1);
        let _ = [word ^ word, word ^ word];
    });
    assert_eq!((apart.executed, apart.size), (3, 3));
}

#[test]
fn chained_operators_stand_side_by_side() {
    let chained = run(Optimisation::Raw, |machine| {
        let word = machine.constant(1);
        let _ = ((word >> 1) ^ word ^ word) & 0x1234;
    });
    assert_eq!((chained.executed, chained.size), (6, 6));
    // One that takes up its result of the pass before is not chained.
    let looping = run(Optimisation::Raw, |machine| {
        let mut word = machine.constant(1);
        for _ in machine.rounds(0..3) {
            word = word ^ word ^ word;
        }
    });
    assert_eq!((looping.executed, looping.size), (2 + 3 * 4, 2 + 4));
}

#[test]
fn a_copy_of_inlined_code_stands_for_itself() {
    let copies = run(Optimisation::Raw, |machine| {
        let word = machine.constant(1);
        for copy in 0..2 {
            let _copy = machine.inlined(copy);
            let _ = mix(word, word);
        }
        let _ = mix(word, word);
    });
    assert_eq!((copies.executed, copies.size), (4, 4));
}

fn five_rounds(machine: Counting<'_>) {
    let mut word = machine.constant(1);
    for _ in machine.rounds(0..5) {
        word = mix(word, word);
        [word] = machine.rename([word]);
    }
}

#[test]
fn a_rolled_loop_costs_its_counter_branch_and_moves() {
    let rolled = run(Optimisation::Raw, five_rounds);
    // Constant, counter; five times operation, move, decrement, branch.
    assert_eq!((rolled.executed, rolled.size), (2 + 5 * 4, 2 + 4));
    assert_eq!(rolled.count.executed(Op::Branch), 5);
}

#[test]
fn an_unrolled_loop_is_as_long_as_all_its_passes() {
    let unrolled = run(Optimisation::Generic, five_rounds);
    assert_eq!((unrolled.executed, unrolled.size), (1 + 5, 1 + 5));
}

#[test]
fn constants_are_loaded_at_use_or_beforehand() {
    let code = |machine: Counting<'_>| {
        let word = machine.constant(1);
        let _ = word.plus_constant(0x1234_5678).plus_constant(0x1234_5678).plus_constant(7);
    };
    assert_eq!(run(Optimisation::Raw, code).executed, 1 + 3 + 2 * 2);
    let mut count = Count::default();
    let ledger = Ledger::new(Optimisation::Generic.plan(), &mut count);
    code(ledger.machine());
    assert_eq!(ledger.preloaded(), 1);
    assert_eq!(count.executed_total(), 1 + 3);
}

/// An account that notes when references are issued, waited for, and anything executed between.
#[derive(Default)]
struct Order(String);

impl Tally for Order {
    fn execute(&mut self, _: Op, count: u32) {
        self.0.extend((0..count).map(|_| 'x'));
    }
    fn read(&mut self, _: Region, _: usize, _: u32) {}
    fn write(&mut self, _: Region, _: usize, _: u32) {}
    fn atomic(&mut self, _: Region, _: usize, _: u32) {}
    fn hash(&mut self, _: u32) {}
    fn issue(&mut self, _: Reference) -> Ticket {
        self.0.push('i');
        Ticket(self.0.len() as u32)
    }
    fn wait(&mut self, _: Ticket) {
        self.0.push('w');
    }
}

fn order(optimisation: Optimisation, code: impl for<'a> FnOnce(Counting<'a>)) -> String {
    let mut order = Order::default();
    let ledger = Ledger::new(optimisation.plan(), &mut order);
    code(ledger.machine());
    ledger.finish();
    order.0
}

#[test]
fn a_value_is_waited_for_where_it_is_first_used() {
    let code = |machine: Counting<'_>| {
        let table = Table { region: Region::CipherTable, at: 0, words: &[1, 2, 3, 4] };
        let [one, two] = machine.read::<2>(table, 0);
        let [three] = machine.read::<1>(table, 2);
        let sum = one.plus(two);
        let _ = sum.plus(one).plus(three);
    };
    // One by one, and each at once; then a burst of two, and a wait before the first use of each reference.
    assert_eq!(order(Optimisation::Raw, code), "iwiwiwxxx");
    assert_eq!(order(Optimisation::Memory, code), "iwiwxxx");
    assert_eq!(order(Optimisation::Overlap, code), "iiwxxwx");
}

#[test]
fn what_nobody_used_is_waited_for_at_the_end() {
    let code = |machine: Counting<'_>| {
        let table = Table { region: Region::CipherTable, at: 0, words: &[1] };
        let _ = machine.read::<1>(table, 0);
    };
    assert_eq!(order(Optimisation::Overlap, code), "iw");
}

/// Two writes of eight words fill the registers that a thread writes from.
#[test]
fn a_write_waits_for_registers_to_be_free() {
    let code = |machine: Counting<'_>| {
        let word = machine.constant(1);
        let mut text = [0; 96];
        for at in [0, 32, 64] {
            machine.write_text(&mut text, at, [word; 8]);
        }
    };
    assert_eq!(order(Optimisation::Overlap, code), "xiiwiww");
}
