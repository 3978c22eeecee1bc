//! Any bytes as what tc shows, or as its commands.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| wirerate_fuzz::imports("tc", data, &[]));
