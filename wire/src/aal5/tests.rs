use proptest::prelude::*;

use super::*;
use crate::atm::{Cell, PayloadType};

const VC: Vc = Vc { vpi: 8, vci: 35 };

/// The division of I.363.5, bit by bit.
fn crc_by_division(bytes: &[u8]) -> u32 {
    let mut rest = u32::MAX;
    for bit in bytes.iter().flat_map(|byte| (0..8).rev().map(move |place| u32::from(byte >> place & 1))) {
        let carry = rest >> 31 ^ bit;
        rest = rest << 1 ^ if carry == 1 { 0x04c1_1db7 } else { 0 };
    }
    !rest
}

fn segmented(payload: &[u8]) -> Vec<[u8; CELL_LEN]> {
    Segmentation::new(VC, &[], payload).unwrap().collect()
}

fn push<'a>(to: &'a mut Reassembly, cell: &[u8; CELL_LEN]) -> Result<Option<&'a [u8]>, Fault> {
    let cell = Cell::of(cell).unwrap();
    match cell.payload_type() {
        PayloadType::User(last) => to.push(cell.payload(), last),
        PayloadType::Oam | PayloadType::Management => panic!("no user data"),
    }
}

/// Outcome of the last of these cells; all before must be of no outcome.
fn outcome(to: &mut Reassembly, cells: &[[u8; CELL_LEN]]) -> Result<Option<Vec<u8>>, Fault> {
    let (last, before) = cells.split_last().unwrap();
    for cell in before {
        assert_eq!(push(to, cell), Ok(None));
    }
    push(to, last).map(|payload| payload.map(<[u8]>::to_vec))
}

#[test]
fn the_check_is_the_one_of_the_catalogue() {
    // "123456789" by the catalogue of CRCs (CRC-32/BZIP2, also CRC-32/AAL5), and by the division.
    assert_eq!(crc([&b"1234"[..], b"56789"]), 0xfc89_1918);
    assert_eq!(crc_by_division(b"123456789"), 0xfc89_1918);
}

#[test]
fn a_whole_pdu_leaves_the_remainder_of_the_recommendation() {
    // I.363.5, section 9.2.1.2: over the whole PDU, its CRC included, the remainder is this one.
    for length in [1, 39, 40, 41, 48, 96, 1500] {
        let pdu: Vec<u8> =
            segmented(&vec![7; length]).iter().flat_map(|cell| cell[HEADER_LEN..].to_vec()).collect();
        assert_eq!(!crc_by_division(&pdu), 0xc704_dd7b);
    }
}

#[test]
fn forty_bytes_fit_one_cell_and_one_more_do_not() {
    assert_eq!([0, 1, 40, 41, 88, 89].map(cells), [1, 1, 1, 2, 2, 3]);
    assert_eq!(cells(MOST_PAYLOAD), 1366);
}

#[test]
fn a_lost_cell_shows_by_the_length_and_a_wrong_bit_by_the_crc() {
    let cells = segmented(&[1; 200]);
    let mut reassembly = Reassembly::new(1500);
    for lost in 0..cells.len() - 1 {
        let left = [&cells[..lost], &cells[lost + 1..]].concat();
        assert_eq!(outcome(&mut reassembly, &left), Err(Fault::Length));
    }
    for wrong in 0..cells.len() * PAYLOAD_LEN - 6 {
        let mut cells = cells.clone();
        cells[wrong / PAYLOAD_LEN][HEADER_LEN + wrong % PAYLOAD_LEN] ^= 0x10;
        assert_eq!(outcome(&mut reassembly, &cells), Err(Fault::Crc));
    }
    assert_eq!(outcome(&mut reassembly, &cells), Ok(Some(vec![1; 200])));
}

#[test]
fn a_lost_last_cell_joins_two_pdus_and_the_third_comes_through() {
    let mut reassembly = Reassembly::new(1500);
    let (one, two) = (segmented(&[1; 100]), segmented(&[2; 100]));
    let joined = [&one[..one.len() - 1], &two[..]].concat();
    assert_eq!(outcome(&mut reassembly, &joined), Err(Fault::Length));
    assert_eq!(outcome(&mut reassembly, &two), Ok(Some(vec![2; 100])));
}

#[test]
fn swapped_cells_show_by_the_crc() {
    let payload: Vec<u8> = (0..200_u8).collect();
    let mut cells = segmented(&payload);
    cells.swap(0, 1);
    assert_eq!(outcome(&mut Reassembly::new(1500), &cells), Err(Fault::Crc));
}

#[test]
fn a_pdu_that_never_ends_takes_no_more_memory_and_the_next_one_comes_through() {
    let mut reassembly = Reassembly::new(100);
    let memory = reassembly.memory();
    for _ in 0..3 {
        assert_eq!(reassembly.push(&[1; PAYLOAD_LEN], Last::No), Ok(None));
    }
    for _ in 0..10_000 {
        assert_eq!(reassembly.push(&[1; PAYLOAD_LEN], Last::No), Err(Fault::TooLong));
    }
    assert_eq!((reassembly.memory(), reassembly.pending()), (memory, memory));
    assert_eq!(reassembly.push(&[1; PAYLOAD_LEN], Last::Yes), Err(Fault::TooLong));
    assert_eq!(outcome(&mut reassembly, &segmented(&[3; 100])), Ok(Some(vec![3; 100])));
}

#[test]
fn one_byte_more_than_the_longest_is_too_long_even_where_the_cells_have_room() {
    let mut reassembly = Reassembly::new(100);
    assert_eq!(outcome(&mut reassembly, &segmented(&[3; 101])), Err(Fault::TooLong));
    assert_eq!(outcome(&mut reassembly, &segmented(&[3; 100])), Ok(Some(vec![3; 100])));
}

#[test]
fn the_longest_pdu_has_65_535_bytes() {
    let payload: Vec<u8> = (0..MOST_PAYLOAD).map(|place| place as u8).collect();
    let cells = segmented(&payload);
    assert_eq!(cells.len(), 1366);
    assert_eq!(outcome(&mut Reassembly::new(usize::MAX), &cells), Ok(Some(payload.clone())));
    assert!(Segmentation::new(VC, &[0], &payload).is_none());
}

#[test]
fn a_length_of_zero_aborts() {
    let mut trailer = [0; PAYLOAD_LEN];
    let sum = crc_by_division(&trailer[..PAYLOAD_LEN - 4]);
    trailer[PAYLOAD_LEN - 4..].copy_from_slice(&sum.to_be_bytes());
    let mut reassembly = Reassembly::new(1500);
    assert_eq!(reassembly.push(&trailer, Last::Yes), Err(Fault::Aborted));
    // Of any number of cells; and only if it is what was sent.
    assert_eq!(reassembly.push(&[9; PAYLOAD_LEN], Last::No), Ok(None));
    assert_eq!(reassembly.push(&trailer, Last::Yes), Err(Fault::Crc));
}

proptest! {
    #[test]
    fn what_is_segmented_comes_back(
        head in prop::collection::vec(any::<u8>(), 0..40),
        packet in prop::collection::vec(any::<u8>(), 1..4000),
        vpi: u8,
        vci: u16,
    ) {
        let vc = Vc { vpi, vci };
        let cells: Vec<_> = Segmentation::new(vc, &head, &packet).unwrap().collect();
        prop_assert_eq!(cells.len(), super::cells(head.len() + packet.len()));
        for (place, bytes) in cells.iter().enumerate() {
            let cell = Cell::of(bytes).unwrap();
            let last = if place + 1 == cells.len() { Last::Yes } else { Last::No };
            prop_assert_eq!((cell.vc(), cell.payload_type()), (vc, PayloadType::User(last)));
        }
        let pdu: Vec<u8> = cells.iter().flat_map(|cell| cell[HEADER_LEN..].to_vec()).collect();
        prop_assert_eq!(&pdu[pdu.len() - 4..], &crc_by_division(&pdu[..pdu.len() - 4]).to_be_bytes());
        let payload = [head, packet].concat();
        prop_assert_eq!(outcome(&mut Reassembly::new(4040), &cells), Ok(Some(payload)));
    }

    #[test]
    fn any_cells_leave_the_next_pdu_whole(
        most in 0..3000_usize,
        cells in prop::collection::vec((any::<u8>(), any::<bool>()), 0..200),
    ) {
        let mut reassembly = Reassembly::new(most);
        let memory = reassembly.memory();
        for (byte, is_last) in cells {
            let last = if is_last { Last::Yes } else { Last::No };
            let _ = reassembly.push(&[byte; PAYLOAD_LEN], last);
            prop_assert!(reassembly.pending() <= memory && reassembly.memory() == memory);
        }
        let _ = reassembly.push(&[0; PAYLOAD_LEN], Last::Yes);
        let payload = vec![5; most.max(1)];
        let expected = if most == 0 { Err(Fault::TooLong) } else { Ok(Some(payload.clone())) };
        prop_assert_eq!(outcome(&mut reassembly, &segmented(&payload)), expected);
    }
}
