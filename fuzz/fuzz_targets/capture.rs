//! Any bytes as a capture file, pcap or pcapng.
//!
//! Beyond not crashing: reading ends, numbers rise by one, no record is longer than a record may be, and what
//! becomes of it is an Ethernet frame or a clear refusal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::capture::{MAX_CAPTURED, Reader, link};
use wire::ethernet::Mac;

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = Reader::over("fuzz", data) else { return };
    let (mut last, mut errors, mut scratch) = (0, 0, Vec::new());
    // A record takes some bytes of the file, an error that leaves a way on likewise.
    for _ in 0..=2 * data.len() {
        match reader.next() {
            Ok(Some(record)) => {
                assert_eq!(record.number, last + 1);
                last = record.number;
                assert!(record.bytes.len() <= MAX_CAPTURED);
                let _ = record.is_cut();
                let length = record.bytes.len();
                let whole = link::to_ethernet(record, Mac::ZERO, &mut scratch);
                assert!(whole.bytes.len() <= length + 64);
            }
            Ok(None) => {
                let _ = reader.cut_short();
                assert!(reader.next().is_ok_and(|record| record.is_none()), "goes on behind its end");
                return;
            }
            Err(error) => {
                errors += 1;
                assert!(errors <= data.len() + 1);
                let _ = error.to_string();
            }
        }
        assert!(reader.interfaces().len() <= data.len());
    }
    panic!("reading does not end");
});
