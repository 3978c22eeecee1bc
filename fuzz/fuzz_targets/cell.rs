//! Any bytes as ATM cells, and as the PDUs that they make up.
//!
//! The first two bytes choose the longest PDU, encapsulation and kind of link. Beyond not crashing: memory stays what it was, a PDU is no
//! longer than the channel's longest, and after whatever came a whole PDU comes through with its bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::LinkKind;
use wire::aal5::{Reassembly, Segmentation};
use wire::atm::{CELL_LEN, Cell, Last, PAYLOAD_LEN, PayloadType, Vc};
use wire::rfc2684::{self, Encapsulation};

fuzz_target!(|data: &[u8]| {
    let Some((&[longest, form], rest)) = data.split_first_chunk::<2>() else { return };
    let longest = usize::from(longest) * 8 + 1;
    let encapsulation = if form & 1 == 0 { Encapsulation::Llc } else { Encapsulation::VcMux };
    let kind = if form & 2 == 0 { LinkKind::Ip } else { LinkKind::Ethernet };
    let mut reassembly = Reassembly::new(longest);
    let memory = reassembly.memory();
    for bytes in rest.chunks_exact(CELL_LEN).filter_map(|bytes| bytes.first_chunk::<CELL_LEN>()) {
        // A fuzzer seldom finds a HEC: cells with a wrong one go on with what their header says, as if it were right.
        let (last, payload) = match Cell::of(bytes) {
            Ok(cell) => match cell.payload_type() {
                PayloadType::User(last) => (last, *cell.payload()),
                PayloadType::Oam | PayloadType::Management => continue,
            },
            Err(_) => {
                let last = if bytes[3] & 2 == 0 { Last::No } else { Last::Yes };
                (last, bytes[CELL_LEN - PAYLOAD_LEN..].try_into().unwrap_or([0; PAYLOAD_LEN]))
            }
        };
        if let Ok(Some(pdu)) = reassembly.push(&payload, last) {
            assert!((1..=longest).contains(&pdu.len()));
        }
        assert_eq!(reassembly.memory(), memory);
        assert!(reassembly.pending() <= memory);
    }
    let _ = rfc2684::payload(rest, encapsulation, kind);
    let _ = reassembly.push(&[0; PAYLOAD_LEN], Last::Yes);
    let whole = &rest[..rest.len().min(longest)];
    if whole.is_empty() {
        return;
    }
    let mut came = None;
    for bytes in Segmentation::new(Vc::NONE, &[], whole).expect("no longer than a PDU may be") {
        let cell = Cell::of(&bytes).expect("made so");
        let PayloadType::User(last) = cell.payload_type() else { panic!("user data") };
        came = reassembly.push(cell.payload(), last).expect("whole").map(<[u8]>::to_vec);
    }
    assert_eq!(came.as_deref(), Some(whole));
});
