//! Prints the cost of each cipher at each step of optimisation: instructions and references a byte, the mix, the size
//! of the code, and cycles on an engine that never waits for memory.

use ciphers::{ALL, Kind, LOCAL_MEMORY, Optimisation};
use tally::{Branch, Op, Reference, Region, Tally};

/// Bytes of the message.
const MESSAGE: usize = 4096;
/// Instructions that a taken branch throws away (assumed: a five-stage pipeline that fills no slot behind it).
const ABORTED: u64 = 3;

fn main() {
    println!(
        "{:<9} {:<8} {:>6} {:>6} | {:>5} {:>5} {:>5} {:>5} {:>5} | {:>5} {:>5} {:>5} | {:>5} {:>6} {:>8} {:>7}",
        "cipher",
        "step",
        "instr",
        "code",
        "alu",
        "mul",
        "imm",
        "br",
        "mem",
        "text",
        "table",
        "key",
        "const",
        "cyc/B",
        "cyc/blk",
        "Mb/s"
    );
    for cipher in ALL {
        for optimisation in Optimisation::ALL {
            let key: Vec<u8> = (0..cipher.about.key_bytes as u8).collect();
            let mut text: Vec<u8> = (0..MESSAGE).map(|at| at as u8).collect();
            let mut taken = Taken(0);
            let report = match cipher.measure(optimisation, &key, &mut text, &mut taken) {
                Ok(report) => report,
                Err(error) => {
                    println!("{}: {error}", cipher.about.name);
                    continue;
                }
            };
            // A hash function pads a message of whole blocks by another.
            let bytes = if cipher.about.kind == Kind::Hash { MESSAGE + 64 } else { MESSAGE };
            let each = |count: u64| count as f64 / bytes as f64;
            let mix = report.mix();
            let references = |region| {
                let sum = report.count.references(region);
                each(sum.reads + sum.writes)
            };
            let cycles = each(report.instructions() + ABORTED * taken.0);
            println!(
                "{:<9} {:<8} {:>6.2} {:>6} | {:>5.1} {:>5.1} {:>5.1} {:>5.1} {:>5.1} | {:>5.2} {:>5.2} {:>5.2} | {:>5} {:>6.2} {:>8.0} {:>7.1}",
                cipher.about.name,
                optimisation.name(),
                each(report.instructions()),
                report.code_size,
                100.0 * mix.alu,
                100.0 * mix.multiply,
                100.0 * mix.immediate,
                100.0 * mix.branch,
                100.0 * mix.memory,
                references(Region::Frame),
                references(Region::CipherTable),
                references(Region::CipherKey),
                report.preloaded,
                cycles,
                cycles * f64::from(cipher.about.block_bits.unwrap_or(8)) / 8.0,
                8.0 * 1400.0 / cycles,
            );
        }
    }
    println!("tables of at most {LOCAL_MEMORY} bytes fit into local memory");
}

/// Counts taken branches.
struct Taken(u64);

impl Tally for Taken {
    fn execute(&mut self, _: Op, _: u32) {}
    fn read(&mut self, _: Region, _: usize, _: u32) {}
    fn write(&mut self, _: Region, _: usize, _: u32) {}
    fn atomic(&mut self, _: Region, _: usize, _: u32) {}
    fn hash(&mut self, _: u32) {}
    fn issue(&mut self, _: Reference) -> tally::Ticket {
        tally::Ticket::DONE
    }
    fn branch(&mut self, branch: Branch) {
        if branch != Branch::NotTaken {
            self.0 += 1;
        }
    }
}
