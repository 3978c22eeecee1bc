//! Programs as test runs have them: a packet gets its VLAN tag first, which a test run cannot give it, and shows the tag that it leaves with among
//! its bytes, as a test run gives back nothing else. The instructions between are as they were.

use super::super::{BPF_EXIT, BPF_REDIRECT, Instruction, R0, R1, R2, R3, R6, R8, call, exit, load_word, set};
use super::action::PUSH_TAG;

/// Offsets of the first two words of `__sk_buff::cb`, by which a test run says the tag: its protocol identifier in network order, 0 for none, and its control
/// information.
pub(crate) const TPID: i16 = 48;
pub(crate) const TCI: i16 = 52;

/// The program behind a prelude that tags the packet; where it redirects, it moves the packet's tag into the bytes.
pub(crate) fn tagged(program: Vec<Instruction>) -> Vec<Instruction> {
    let prelude = [
        copy(R6, R1),
        load_word(R2, R1, TPID),
        Instruction { code: 0x15, registers: R2, offset: 2, immediate: 0 },
        load_word(R3, R1, TCI),
        call(PUSH_TAG),
        copy(R1, R6),
    ];
    // Behind another tag, which nobody sees, the first one is among the bytes.
    let epilogue = [
        copy(R8, R0),
        copy(R1, R6),
        set(R2, 0x88a8_u16.to_be().into()),
        set(R3, 1),
        call(PUSH_TAG),
        copy(R0, R8),
        exit(),
    ];
    let mut all = [&prelude[..], &program].concat();
    let end = all.len();
    let is_redirected = |two: &[Instruction]| two[0] == call(BPF_REDIRECT) && two[1].code == BPF_EXIT;
    let redirections: Vec<usize> = (1..end).filter(|at| is_redirected(&all[at - 1..=*at])).collect();
    for at in &redirections {
        let distance = i16::try_from(end - at - 1).unwrap_or_default();
        all[*at] = Instruction { code: 0x05, registers: 0, offset: distance, immediate: 0 };
    }
    if !redirections.is_empty() {
        all.extend(epilogue);
    }
    all
}

fn copy(target: u8, source: u8) -> Instruction {
    Instruction { code: 0xbf, registers: target | source << 4, offset: 0, immediate: 0 }
}
